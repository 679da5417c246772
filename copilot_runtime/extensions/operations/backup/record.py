"""The records of an archive: rows of tables, and named binary objects."""

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from copilot_runtime.base import jsontext

END_OF_DATES = 253402300800
"""Seconds from 1970 to the year 10000, which `datetime` cannot represent."""

_LARGE_LINE = 1 << 20
"""Bytes; a shorter line takes little memory whatever its structure."""
_MOST_TEXTS = 50_000
_MOST_OUTSIDE = 1 << 18
"""Maximum bytes of a line outside of strings: some columns, and lists of a few thousand names."""


class DamagedRecord(ValueError):
    """A record is malformed, or does not fit its table."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: strings, numbers, bytes and `None` by column."""

    table: str
    values: Mapping[str, Any]

    def text(self, name: str) -> str:
        """Return a string. This and the other getters raise `DamagedRecord` for another type."""
        return self._get(name, str)

    def optional_text(self, name: str) -> str | None:
        return None if self.values.get(name) is None else self.text(name)

    def number(self, name: str) -> int:
        return self._get(name, int)

    def optional_number(self, name: str) -> int | None:
        return None if self.values.get(name) is None else self.number(name)

    def time(self, name: str) -> float:
        seconds = float(self._get(name, (int, float)))
        if not 0 <= seconds < END_OF_DATES:
            raise DamagedRecord(f"{name!r} of a {self.table} is no time")
        return seconds

    def optional_time(self, name: str) -> float | None:
        return None if self.values.get(name) is None else self.time(name)

    def flag(self, name: str) -> bool:
        return bool(self._get(name, (bool, int)))

    def data(self, name: str) -> bytes:
        return self._get(name, bytes)

    def texts(self, name: str) -> Sequence[str]:
        found = self._get(name, list)
        if not all(isinstance(text, str) for text in found):
            raise DamagedRecord(f"{name!r} of a {self.table} is no list of texts")
        return found

    def _get(self, name: str, kind: Any) -> Any:
        value = self.values.get(name)
        if not isinstance(value, kind):
            raise DamagedRecord(f"{name!r} of a {self.table} is missing or of the wrong kind")
        return value


@dataclass(frozen=True, slots=True)
class StoredObject:
    """A named binary object, such as a file."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class PackedObject:
    """An object in an archive; its chunks can be read once, before the next record."""

    name: str
    pieces: Iterable[bytes]


Record = Row | StoredObject
PackedRecord = Row | PackedObject


def encode_row(row: Row) -> bytes:
    """Encode a row as a line of JSON."""
    values = {name: _encode(value) for name, value in row.values.items()}
    return orjson.dumps([row.table, values], option=orjson.OPT_APPEND_NEWLINE)


def decode_row(line: bytes) -> Row:
    """Decode a line. Raises `DamagedRecord`."""
    _check_shape(line)
    try:
        match jsontext.loads(line):
            case [str(table), dict(values)]:
                return Row(table, {str(name): _decode(one) for name, one in values.items()})
            case _:
                raise DamagedRecord("a line is no row")
    except ValueError as error:
        raise DamagedRecord(str(error)) from error


def _check_shape(line: bytes) -> None:
    """Raise `DamagedRecord` for a long line with too much outside of strings.

    Each `[]` would become an object, which takes 30 times the memory of the line.
    """
    if len(line) <= _LARGE_LINE:
        return
    place = outside = 0
    for _ in range(_MOST_TEXTS):
        if (found := _NEXT_TEXT.match(line, place)) is None:
            break
        outside += found.end(1) - place
        place = found.end()
    else:
        raise DamagedRecord("a line has too many values")
    if outside + len(line) - place > _MOST_OUTSIDE:
        raise DamagedRecord("a line has too many values")


_NEXT_TEXT = re.compile(rb'([^"]*+)"(?:[^"\\]++|\\.)*+"', re.DOTALL)
"""Matches JSON up to and including the next string."""


def _encode(value: Any) -> Any:
    """Encode bytes as an object; as text if possible, which compresses better than base64."""
    if not isinstance(value, bytes | memoryview):
        return value
    data = bytes(value)
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _decode(value: Any) -> Any:
    match value:
        case {"text": str(text)}:
            return text.encode()
        case {"base64": str(text)}:
            return base64.b64decode(text, validate=True)
        case dict():
            raise DamagedRecord("an object stands where a value should be")
        case _:
            return value
