"""Write JSON for the wire, whatever text a model or an action has produced."""

import json
from typing import Any

import orjson


def dumps(value: Any) -> bytes:
    """Return compact JSON. What orjson refuses is written by the standard library.

    That is half a character (a lone surrogate, when an emoji was cut in two), which is escaped,
    so that a browser joins the halves again; an integer beyond 64 bits; and, as its text, a
    value JSON does not know.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":"), default=str).encode()
