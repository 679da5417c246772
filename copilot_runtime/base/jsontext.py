"""JSON as others write and read it: fast, and with half characters (lone surrogates).

A browser or a model may cut a text in the middle of an emoji. orjson refuses the halves, which
are no reason to refuse the text.
"""

import json
import re
from typing import Any

import orjson

MAX_DEPTH = 254
"""Levels; orjson reads more than it writes."""


def loads(data: bytes) -> Any:
    """Read JSON; half a character becomes U+FFFD. Raises `ValueError` for anything else.

    What is nested more than 254 levels deep is refused, for it could not be written again.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        if b"\\u" not in data:
            raise
        value = orjson.loads(_ESCAPES.sub(_replace_escaped_halves, data))
    if len(data) > 2 * MAX_DEPTH and data.count(b"[") + data.count(b"{") > MAX_DEPTH:
        try:
            orjson.dumps(value)
        except TypeError as error:
            raise ValueError("nested too deeply") from error
    return value


_ESCAPES = re.compile(
    rb"""
    ((?: [^\\]++ | \\[^u] | \\u(?![dD][89a-fA-F]) | \\u[dD][89abAB]HH \\u[dD][c-fC-F]HH )*+)
    ((?: \\u[dD][c-fC-F]HH | \\u[dD][89abAB]HH (?!\\u[dD][c-fC-F]HH) )*+)
    """.replace(b"H", b"[0-9a-fA-F]"),
    re.DOTALL | re.VERBOSE,
)
"""JSON up to escaped half characters, and these; nothing at an escape that is none."""


def _replace_escaped_halves(found: re.Match[bytes]) -> bytes:
    if not found[0] and found.end() < len(found.string):
        raise ValueError("an escape is cut off")  # and there may be millions more
    return found[1] + rb"\ufffd" * (len(found[2]) // len(rb"\ufffd"))


def dumps(value: Any) -> bytes:
    """Write compact JSON. What orjson refuses is written by the standard library.

    That is half a character, which is escaped, so that a browser joins the halves again; an
    integer beyond 64 bits; and, as its text, a value that is not JSON.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":"), default=str).encode()


def dumps_line(value: Any) -> bytes:
    """Write what `dumps` does as one line for every reader.

    U+0085, U+2028 and U+2029 are escaped, which JSON takes for letters and others for the end of
    a line; so are the controls that a terminal obeys.
    """
    return escape_json_controls(dumps(value))


def escape_json_controls(data: bytes) -> bytes:
    """Return JSON with escapes for what `dumps_line` escapes."""
    return _CONTROL.sub(_escape_control, data)


_CONTROL = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]")
"""U+007F to U+009F, U+2028 and U+2029 in UTF-8; JSON has them nowhere but in texts."""


def _escape_control(found: re.Match[bytes]) -> bytes:
    return rb"\u%04x" % ord(found[0].decode())


def replace_surrogates(text: str) -> str:
    """Replace half characters, which no transport can encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = _PAIR.sub(_join_halves, text)
        return _HALVES.sub(lambda found: "\ufffd" * len(found[0]), text)
    return text


_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_HALVES = re.compile("[\ud800-\udfff]+")  # a codec would ask what to do for each: 100 times slower


def _join_halves(found: re.Match[str]) -> str:
    return found[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")
