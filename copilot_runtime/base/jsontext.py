"""Fast JSON encoding and decoding that tolerates lone surrogates.

A browser or a model may cut a text in the middle of an emoji, which leaves a lone surrogate. orjson
rejects such texts; this module replaces or escapes the surrogate instead.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, cast

import orjson

MAX_DEPTH = 254
"""Maximum nesting depth; orjson reads deeper values, but cannot write them."""

_HALVES = 100_000
"""Maximum number of places with lone surrogates that are repaired, among ten
times as many backslashes: that takes 0.1 s."""


def loads(data: bytes, mark: Callable[[Any], Any] | None = None) -> Any:
    """Decode JSON; an escaped lone surrogate becomes U+FFFD.

    With `mark`, a value with lone surrogates is what `mark` returns for it, such as `mark_halves`;
    bytes that are no UTF-8 are lone surrogates, too (PEP 383).
    Raises `ValueError` for invalid JSON, and for values nested more than 254 levels deep, which
    could not be encoded again.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        if mark is not None and (found := _decode_bytes(data, mark)) is not None:
            return found
        if b"\\u" not in data:
            raise
        if data.count(b"\\") > 10 * _HALVES:
            raise ValueError(f"half of a character among {10 * _HALVES:,} backslashes") from None
        repaired, count = _ESCAPES.subn(_replace_escaped_surrogates, data, _HALVES)
        if count == _HALVES:
            message = f"half of a character in more than {_HALVES:,} places"
            raise ValueError(message) from None
        value = orjson.loads(repaired)
        _check_depth(value)
        return value if mark is None else mark(json.loads(data))
    if len(data) > 2 * MAX_DEPTH:
        _check_depth(value)
    return value


def _decode_bytes(data: bytes, mark: Callable[[Any], Any]) -> Any:
    """Return the value of JSON with bytes that are no UTF-8; `None` if all are."""
    text = data.decode(errors="surrogateescape")
    if find_surrogate(text) is None:
        return None
    loads(text.encode(errors="replace"))
    return mark(json.loads(text))


def _check_depth(value: Any) -> None:
    try:
        orjson.dumps(value)  # in a third of the time that counting brackets takes
    except TypeError as error:
        raise ValueError("nested too deeply") from error


def replace_escaped_halves(data: bytes) -> bytes:
    """Return JSON, or lines of it, with U+FFFD for escaped lone surrogates and invalid bytes."""
    try:
        data.decode()
    except UnicodeDecodeError:
        data = data.decode(errors="replace").encode()
    if b"\\ud" not in data and b"\\uD" not in data:
        return data
    if data.count(b"\\") > 10 * _HALVES:
        return data
    try:
        return _ESCAPES.sub(_replace_escaped_surrogates, data, _HALVES)
    except ValueError:  # an escape is cut off: this is no JSON
        return data


_ESCAPES = re.compile(
    rb"""
    (
      (?:
        [^\\]*+
        (?: (?: \\[^u] )++ | (?: \\u(?![dD][89a-fA-F]) )++ | \\u[dD][89abAB]HH \\u[dD][c-fC-F]HH )
      )*+
      [^\\]*+
    )
    ((?: \\u[dD][c-fC-F]HH | \\u[dD][89abAB]HH (?!\\u[dD][c-fC-F]HH) )*+)
    """.replace(b"H", b"[0-9a-fA-F]"),
    re.DOTALL | re.VERBOSE,
)
"""JSON up to the next escaped lone surrogates, and these; empty at an incomplete escape."""


def _replace_escaped_surrogates(found: re.Match[bytes]) -> bytes:
    if not found[0] and found.end() < len(found.string):
        raise ValueError("an escape is cut off")  # and there may be millions more
    return found[1] + rb"\ufffd" * (len(found[2]) // len(rb"\ufffd"))


def dumps(value: Any) -> bytes:
    """Encode compact JSON, with the standard library for values that orjson rejects.

    Those are lone surrogates, which are escaped, so that a browser can join the halves again;
    integers beyond 64 bits; and other objects, which become their `str()`.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":"), default=str).encode()


def dumps_line(value: Any) -> bytes:
    """Encode as `dumps` does, in one line for every reader.

    U+0085, U+2028 and U+2029, which some readers treat as line ends, are escaped, and so are
    terminal control characters.
    """
    return escape_json_controls(dumps(value))


def escape_json_controls(data: bytes) -> bytes:
    """Escape the characters in encoded JSON that `dumps_line` escapes."""
    return _CONTROL.sub(_escape_control, data)


_CONTROL = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]")
"""U+007F to U+009F, U+2028 and U+2029 in UTF-8; in JSON they occur only in strings."""


def _escape_control(found: re.Match[bytes]) -> bytes:
    return rb"\u%04x" % ord(found[0].decode())


def replace_surrogates(text: str) -> str:
    """Join surrogate pairs, and replace lone surrogates, which UTF-8 cannot encode, by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = _BYTES.sub(_join_bytes, _PAIR.sub(_join_pair, text))
        return _LONE.sub(lambda found: "\ufffd" * len(found[0]), text)
    return text


class CutText(str):
    """A text that begins or ends with half of a character, of which U+FFFD stands there.

    `raw` has the half itself. Only `join_pieces` and `event_order.characters` look at it.
    """

    __slots__ = ("raw",)
    raw: str

    def __new__(cls, raw: str) -> Self:
        text = super().__new__(cls, replace_surrogates(raw))
        text.raw = raw
        return text


def mark_halves(value: Any) -> Any:
    """Return a JSON value with a `CutText` for each text that begins or ends with a half.

    Other lone surrogates, and those in keys, become U+FFFD.
    """
    match value:
        case str():
            is_cut = find_surrogate(value[:1] + value[-1:]) is not None
            return CutText(value) if is_cut else replace_surrogates(value)
        case list():
            return [mark_halves(item) for item in cast("list[Any]", value)]
        case dict():
            members = cast("Mapping[str, Any]", value).items()
            return {replace_surrogates(name): mark_halves(item) for name, item in members}
        case _:
            return value


def get_raw_text(text: str) -> str:
    """Return a text with the halves of characters at its edges."""
    return text.raw if isinstance(text, CutText) else text


def join_pieces(pieces: Sequence[str]) -> str:
    """Join the pieces of one text, and the halves of characters between them.

    A half without its other becomes U+FFFD.
    """
    text = "".join(pieces)
    return text if text.isascii() else replace_surrogates("".join(map(get_raw_text, pieces)))


find_surrogate = re.compile("[\ud800-\udfff]").search

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_LONE = re.compile("[\ud800-\udfff]+")  # a codec error handler would be 100 times slower


_BYTES = re.compile("[\udc80-\udcff]+")
"""Bytes that were no UTF-8 (PEP 383)."""

_BEGINNING = re.compile(
    "(?:[\ud800-\udbff]|[\udcc2-\udcdf]|[\udce0-\udcef][\udc80-\udcbf]?"
    "|[\udcf0-\udcf4][\udc80-\udcbf]{0,2})\\Z"
)


def split_beginning(text: str) -> tuple[str, str]:
    """Return a text without the beginning of a character at its end, and that beginning."""
    found = _BEGINNING.search(text, max(0, len(text) - 3))
    return (text, "") if found is None else (text[: found.start()], found[0])


def _join_bytes(found: re.Match[str]) -> str:
    return found[0].encode(errors="surrogateescape").decode(errors="replace")


def _join_pair(found: re.Match[str]) -> str:
    return found[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")
