"""The JSON that providers are sent."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import orjson


def dumped(value: Any) -> bytes:
    """Write JSON; half characters of broken texts become question marks."""
    try:
        return orjson.dumps(value, default=_plain)
    except TypeError:
        return json.dumps(value, ensure_ascii=False, default=_plain).encode(errors="replace")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {**value}
    if isinstance(value, Sequence | set | frozenset):
        return list(value)
    raise TypeError(f"{value!r} cannot be written as JSON.")
