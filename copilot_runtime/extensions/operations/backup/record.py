"""What an archive consists of: rows of tables, and objects, which are bytes with a name."""

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from copilot_runtime.base import jsontext

END_OF_DATES = 253402300800
"""Seconds from 1970 to the year 10000, which no calendar of Python has."""

_LARGE_LINE = 1 << 20
"""Bytes; whatever is in a shorter line takes little memory."""
_MOST_TEXTS = 50_000
_MOST_OUTSIDE = 1 << 18
"""Bytes of a line that are in no text: a row has some columns, and lists of some thousand names."""


class DamagedRecord(ValueError):
    """A record is none, or is not what its table has."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: texts, numbers, bytes and nothing, by the names of columns."""

    table: str
    values: Mapping[str, Any]

    def text(self, name: str) -> str:
        """Return a text. This and the others raise `DamagedRecord` for anything else."""
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
    """Bytes with a name, such as an object of a storage, or a file."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class PackedObject:
    """An object of an archive that is being read: its bytes come once, before the next record."""

    name: str
    pieces: Iterable[bytes]


Record = Row | StoredObject
PackedRecord = Row | PackedObject


def encode_row(row: Row) -> bytes:
    """Return a row as a line of JSON, with its end."""
    values = {name: _encode(value) for name, value in row.values.items()}
    return orjson.dumps([row.table, values], option=orjson.OPT_APPEND_NEWLINE)


def decode_row(line: bytes) -> Row:
    """Return the row of a line. Raises `DamagedRecord`."""
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
    """Raise `DamagedRecord` for a long line that is more than some texts.

    Each `[]` would become an object: 30 times the memory of the line.
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
"""What is before the next text of JSON, and that text."""


def _encode(value: Any) -> Any:
    """Return bytes as an object: most of them are text, which packs better as it is."""
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
