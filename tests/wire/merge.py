"""Put incremental results together as urql 5 does: the 2022 dialect with whole paths."""

from collections.abc import Sequence
from typing import Any, cast

Json = dict[str, Any]


def merge(payloads: Sequence[Json]) -> Json:
    """Return the data a client ends up with."""
    data: Json = payloads[0]["data"]
    for payload in payloads[1:]:
        assert not {"pending", "completed", "errors"} & payload.keys(), payload
        for patch in payload.get("incremental", ()):
            assert "id" not in patch, patch
            _apply(data, patch)
    return data


def _apply(data: Json, patch: Json) -> None:
    *path, last = patch["path"]
    target: Any = data
    for key in path:
        target = target[key]
    if "items" in patch:
        for offset, item in enumerate(patch["items"]):
            index = last + offset
            assert index == len(target), f"item {index} of {len(target)}"
            target.append(item)
    else:
        _deep(target[last], patch["data"])


def _deep(target: Json, more: Json) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            _deep(target[key], cast(Json, value))
        else:
            target[key] = value
