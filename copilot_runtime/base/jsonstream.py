"""An incremental JSON parser: reports values and pieces of strings while an object streams in."""

import re
from collections.abc import Generator, Iterator, Sequence
from json import loads
from typing import Any, Literal, NamedTuple

Path = tuple[str | int, ...]
"""Keys and indexes from the root to a nested value."""

MAX_DEPTH = 200
"""Maximum nesting depth."""


class JsonPart(NamedTuple):
    """A parse event.

    `begin`: a value begins; `value` is its kind, `object`, `array`, `string` or `other`.
    `text`: a string continues; `value` is the new text, unescaped, never empty.
    `end`: a value is complete; `value` is the decoded value.
    """

    path: Path
    kind: Literal["begin", "text", "end"]
    value: Any


class JsonReader:
    """Parses one JSON object from chunks cut anywhere, in linear time.

    Only values at one of `paths` are reported; `*` matches any key or index: `("data", "*", "*")`.
    After a syntax error, `error` has its description and nothing more is reported. An escaped lone
    surrogate becomes U+FFFD. With `lags`, the end of a string and the beginning of an array are
    reported together with the next token, as the parser of the Node runtime does.
    """

    def __init__(self, paths: Sequence[tuple[str, ...]] = (("*",),), *, lags: bool = False) -> None:
        self._paths = paths
        self._most_keys = max(map(len, paths), default=0)
        self.error: str | None = None
        self.is_complete = False
        self._position = 0
        """Offset of the current chunk, without the unparsed rest of the previous one."""
        self._rest = ""
        """An incomplete escape at the end of the previous chunk."""
        self._lags = lags
        self._late: list[JsonPart] = []
        """The parse event that is held back until the next token."""
        self._frames: list[_Frame] = []
        self._string: _String | None = None
        self._scalar: list[str] | None = None
        """The pieces of a number or a literal such as `true`."""

    def feed(self, piece: str) -> Sequence[JsonPart]:
        """Parse the next chunk and return its parse events in order."""
        if self.error is not None:
            return []
        parts, self._late = (self._late, []) if piece.strip(_SPACE) else ([], self._late)
        text, self._rest = self._rest + piece, ""
        try:
            for part in self._read(text):
                parts.append(part)
        except _JsonSyntaxError as error:
            position = self._position + error.at + 1
            self.error = f"{error.reason} at character {position}."
        self._position += len(text) - len(self._rest)
        if self._lags and parts and self._may_hold_back(text, parts[-1]):
            self._late = [parts.pop()]
        return parts

    def _may_hold_back(self, text: str, part: JsonPart) -> bool:
        """Return whether the last token of the chunk closes a string or opens an array."""
        if self._string is not None or self._scalar is not None or not self._frames:
            return False
        frame = self._frames[-1]
        match text.rstrip(_SPACE)[-1:]:
            case '"':
                return frame.expects == "," and part.kind == "end" and isinstance(part.value, str)
            case "[":
                return part.kind == "begin" and part.value == "array"
            case _:
                return False

    def _read(self, text: str) -> Iterator[JsonPart]:
        at, end = 0, len(text)
        while at < end:
            if self._string is not None:
                at = yield from self._read_string(self._string, text, at)
            elif self._scalar is not None:
                at = yield from self._read_scalar(self._scalar, text, at)
            else:
                at = _skip_space(text, at)
                if at < end:
                    at = yield from self._read_token(text[at], at)

    def _read_token(self, char: str, at: int) -> Generator[JsonPart, None, int]:
        """Read the first character of a token, and return the index after it."""
        if self.is_complete:
            raise _JsonSyntaxError("Something stands behind the object", at)
        frame = self._frames[-1] if self._frames else None
        if frame is None:
            if char != "{":
                raise _JsonSyntaxError("An object is expected", at)
            self._frames.append(_Frame({}, (), None))
            return at + 1
        if char in "}]":
            if char != frame.closer or not frame.may_close:
                raise _JsonSyntaxError(f"{char!r} is not expected", at)
            self._frames.pop()
            if not self._frames:
                self.is_complete = True
            yield from self._end(frame.path, frame.value)
            return at + 1
        if frame.expects == ",":
            if char != ",":
                raise _JsonSyntaxError(f"A comma is expected, and not {char!r}", at)
            frame.expects, frame.may_close = ("key" if frame.closer == "}" else "value"), False
            return at + 1
        if frame.expects == ":":
            if char != ":":
                raise _JsonSyntaxError(f"A colon is expected, and not {char!r}", at)
            frame.expects = "value"
            return at + 1
        if frame.expects == "key":
            if char != '"':
                raise _JsonSyntaxError("A key in quotes is expected", at)
            self._string = _String(None)
            return at + 1
        return (yield from self._read_value(frame, char, at))

    def _read_value(self, frame: "_Frame", char: str, at: int) -> Generator[JsonPart, None, int]:
        full_path = frame.child_path(self._most_keys)
        path = self._report(full_path)
        kind = _KINDS.get(char, "other")
        if char in "{[":
            if len(self._frames) >= MAX_DEPTH:
                raise _JsonSyntaxError(
                    f"There are more than {MAX_DEPTH} values inside each other", at
                )
            self._frames.append(_Frame({} if char == "{" else [], full_path, path))
        elif char == '"':
            self._string = _String(path, is_value=True)
        elif char in _SCALAR:
            self._scalar = []
        else:
            raise _JsonSyntaxError(f"{char!r} is not expected", at)
        if path is not None:
            yield JsonPart(path, "begin", kind)
        return at if kind == "other" else at + 1

    def _read_string(self, string: "_String", text: str, at: int) -> Generator[JsonPart, None, int]:
        """Read the available part of a string, and return the index after it."""
        end, pieces = len(text), len(string.pieces)
        is_closed = False
        while at < end and not is_closed:
            found = _STOP.search(text, at)
            stop = end if found is None else found.start()
            if stop > at:
                string.pieces.append(text[at:stop])
            at = stop
            if found is None:
                break
            if text[at] == '"':
                is_closed = True
                at += 1
            elif text[at] == "\\":
                value, size = _read_escape(text, at)
                if not size:
                    self._rest, at = text[at:], end
                    break
                string.pieces.append(value)
                at += size
            else:
                raise _JsonSyntaxError("A control character stands in a text", at)
        if string.path is not None and (new := "".join(string.pieces[pieces:])):
            yield JsonPart(string.path, "text", new)
        if is_closed:
            self._string = None
            value = "".join(string.pieces)
            if string.is_value:
                yield from self._end(string.path, value)
            else:
                self._frames[-1].key, self._frames[-1].expects = value, ":"
        return at

    def _read_scalar(self, pieces: list[str], text: str, at: int) -> Generator[JsonPart, None, int]:
        found = _SCALAR_END.search(text, at)
        stop = len(text) if found is None else found.start()
        pieces.append(text[at:stop])
        if found is not None:
            self._scalar = None
            word = "".join(pieces)
            frame = self._frames[-1]
            path = self._report(frame.child_path(self._most_keys))
            try:
                value = loads(word, parse_constant=_refuse_constant)
            except ValueError:
                raise _JsonSyntaxError(f"{word[:40]!r} is no value", stop - 1) from None
            yield from self._end(path, value)
        elif sum(map(len, pieces[-2:])) > _LONGEST_SCALAR or len(pieces) > _LONGEST_SCALAR:
            raise _JsonSyntaxError("A number is too long", stop - 1)
        return stop

    def _end(self, path: Path | None, value: Any) -> Iterator[JsonPart]:
        """Add a complete value to its parent, and report it."""
        if self._frames:
            self._frames[-1].add(value)
        if path is not None:
            yield JsonPart(path, "end", value)

    def _report(self, full_path: Path | None) -> Path | None:
        """Return a path if it matches one of the reported paths, else None."""
        if full_path is None:
            return None
        for pattern in self._paths:
            if len(pattern) == len(full_path) and all(map(_fits, pattern, full_path)):
                return full_path
        return None


class _Frame:
    """An open object or array. `path` is its path if it is reported, else None."""

    __slots__ = ("closer", "expects", "full_path", "key", "may_close", "path", "value")

    def __init__(
        self, value: dict[str, Any] | list[Any], full_path: Path | None, path: Path | None
    ) -> None:
        self.value = value
        self.full_path = full_path
        """Its path; None if it is deeper than every reported path."""
        self.path = path
        self.key = ""
        self.closer = "}" if isinstance(value, dict) else "]"
        self.expects: Literal["key", ":", "value", ","] = (
            "key" if isinstance(value, dict) else "value"
        )
        self.may_close = True

    def child_path(self, most: int) -> Path | None:
        """Return the path of the next child value; None if it is deeper than `most` keys."""
        if self.full_path is None or len(self.full_path) >= most:
            return None
        key = self.key if isinstance(self.value, dict) else len(self.value)
        return (*self.full_path, key)

    def add(self, value: Any) -> None:
        if isinstance(self.value, dict):
            self.value[self.key] = value
        else:
            self.value.append(value)
        self.expects, self.may_close = ",", True


class _String:
    """An open string: a key, or a value with the path under which it is reported."""

    __slots__ = ("is_value", "path", "pieces")

    def __init__(self, path: Path | None, *, is_value: bool = False) -> None:
        self.path = path
        self.is_value = is_value
        self.pieces: list[str] = []


class _JsonSyntaxError(Exception):
    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.at = at


_SPACE = " \t\n\r"
_NO_SPACE = re.compile(r"[^ \t\n\r]")
_STOP = re.compile(r'["\\\x00-\x1f]')
_KINDS = {"{": "object", "[": "array", '"': "string"}
_SCALAR = frozenset("-0123456789tfn")
_SCALAR_END = re.compile(r"[ \t\n\r,\]}]")
_LONGEST_SCALAR = 400
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_ESCAPES = {
    **{char: char for char in '"\\/'},
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}
_HALF = "\ufffd"


def _skip_space(text: str, at: int) -> int:
    found = _NO_SPACE.search(text, at)
    return len(text) if found is None else found.start()


def _fits(key: str, step: str | int) -> bool:
    return key in ("*", step)


def _read_escape(text: str, at: int) -> tuple[str, int]:
    """Return the character of an escape and its length; length 0 if the escape is incomplete."""
    if at + 1 >= len(text):
        return "", 0
    if text[at + 1] != "u":
        if (char := _ESCAPES.get(text[at + 1])) is None:
            raise _JsonSyntaxError(f"'\\{text[at + 1]}' is no escape", at)
        return char, 2
    if at + 6 > len(text):
        return "", 0
    code = _read_code(text, at)
    if 0xDC00 <= code < 0xE000:
        return _HALF, 6
    if not 0xD800 <= code < 0xDC00:
        return chr(code), 6
    following = text[at + 6 : at + 12]
    if len(following) < 6 and "\\u".startswith(following[:2]):
        return "", 0
    if not following.startswith("\\u"):
        return _HALF, 6
    low = _read_code(text, at + 6)
    if not 0xDC00 <= low < 0xE000:
        return _HALF, 6
    return chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)), 12


def _read_code(text: str, at: int) -> int:
    found = _HEX.match(text, at + 2)
    if found is None:
        raise _JsonSyntaxError("'\\u' needs four hexadecimal digits", at)
    return int(found.group(), 16)


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)
