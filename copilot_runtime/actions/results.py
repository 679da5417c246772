"""Serialises the return value of an action: strings unchanged, other values as JSON."""

from base64 import b64encode
from typing import Any

from copilot_runtime.base.jsontext import replace_surrogates


def serialize_result(value: Any) -> str:
    """Return the text for the model. Raises `TypeError` for a value without a JSON form."""
    if isinstance(value, str):
        return replace_surrogates(str.__str__(value))  # the text of a StrEnum, not its name
    return "" if value is None else replace_surrogates(_to_json(value))


def _to_json(value: Any) -> str:
    # encodes pydantic models, dataclasses, dates, sets, Decimal, and integers of any size, too
    from pydantic_core import PydanticSerializationError, to_json

    try:
        return to_json(_plain_bytes(value), inf_nan_mode="null", fallback=_fallback).decode()
    except PydanticSerializationError as error:
        if isinstance(value, dict | list | tuple | set | frozenset):
            cause = f"A value in the returned {type(value).__name__}"
        else:
            cause = f"The returned {type(value).__name__}"
        raise TypeError(f"{cause} cannot be written as JSON: {error}") from error


def _plain_bytes(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return b64encode(value).decode()
    return value


def _fallback(value: Any) -> Any:
    """Convert values of other packages by their `tolist` method (numpy, pandas)."""
    if callable(tolist := getattr(value, "tolist", None)):
        return tolist()
    raise TypeError(f"a {type(value).__qualname__} has no JSON form")
