"""Converts JSON values to and from `google.protobuf.Struct`, whose numbers are doubles."""

from collections.abc import Mapping
from typing import Any, cast

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.struct_pb2 import Struct, Value

from copilot_runtime.base.jsontext import dumps, loads

_MAX_DEPTH = 90
_EXACT = 2**53
"""The largest integer up to which all integers are exact as doubles."""


def read_struct(struct: Struct) -> dict[str, Any]:
    """Return an object, with whole numbers as integers."""
    return cast("dict[str, Any]", _restore(MessageToDict(struct)))


def build_struct(value: Mapping[str, Any]) -> Struct:
    """Return an object as a `Struct`; values that are too deep or no JSON become strings."""
    struct = Struct()
    for name, one in value.items():
        struct.fields[name].CopyFrom(_build(one))
    return struct


def _build(value: Any) -> Value:
    if isinstance(value, int) and abs(value) > _EXACT:
        return Value(string_value=str(value))
    try:
        return ParseDict(loads(dumps(value)), Value(), max_recursion_depth=_MAX_DEPTH)
    except (ParseError, ValueError, TypeError, RecursionError):
        return Value(string_value=str(value))


def _restore(value: Any) -> Any:
    match value:
        case float() if value.is_integer() and abs(value) <= _EXACT:
            return int(value)
        case dict():
            return {name: _restore(one) for name, one in value.items()}
        case list():
            return [_restore(one) for one in value]
        case _:
            return value
