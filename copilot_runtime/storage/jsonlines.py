"""JSON in a storage: a value for each object, or one for each line of it."""

from collections.abc import Iterable
from typing import Any

import orjson

from copilot_runtime.jsontext import dumps, loads
from copilot_runtime.jsonvalue import JsonObject, JsonValue
from copilot_runtime.storage.storage import ObjectNotFound, Storage


def encode_lines(values: Iterable[JsonValue]) -> bytes:
    """Write each value in a line of its own; nothing at all for no values."""
    return b"".join(dumps(value) + b"\n" for value in values)


def decode_lines(data: bytes) -> list[JsonValue]:
    """Read one value of each line that is not blank. Raises `ValueError`."""
    return [loads(line) for line in data.split(b"\n") if line.strip()]


def salvage_lines(data: bytes) -> list[JsonObject]:
    """Read the objects of those lines that have one: a line that a crash has torn is left out."""
    found: list[JsonObject] = []
    for line in data.split(b"\n"):
        try:
            value = loads(line) if line.strip() else None
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def encode_json(value: JsonValue) -> bytes:
    """Write JSON for people to read."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2)


def decode_json(data: bytes) -> JsonValue:
    """Read JSON; nothing at all is an empty object. Raises `ValueError`."""
    return loads(data) if data.strip() else {}


async def read_value(storage: Storage, key: str) -> Any:
    """Return the value of a `.json`, the list of a `.jsonl`, and the bytes of any other object.

    Raises `ObjectNotFound`, and `ValueError` for what is no JSON.
    """
    data = await storage.get(key)
    if key.endswith(".json"):
        return decode_json(data)
    return decode_lines(data) if key.endswith(".jsonl") else data


async def append_line(storage: Storage, key: str, line: bytes) -> None:
    """Add a line, with the end of line that it may lack."""
    await storage.append(key, line if line.endswith(b"\n") else line + b"\n")


class JsonLines:
    """The lines of one object of a storage."""

    def __init__(self, storage: Storage, key: str) -> None:
        self.storage = storage
        self.key = key
        self._ends_midline = False

    async def read(self) -> list[JsonObject]:
        """Return the objects of all lines; none if there is no such object of the storage."""
        try:
            data = await self.storage.get(self.key)
        except ObjectNotFound:
            data = b""
        self._ends_midline = not data.endswith(b"\n") and bool(data)
        return salvage_lines(data)

    async def append(self, values: Iterable[JsonValue]) -> None:
        """Add lines. One that a crash has torn, by what was read, stays a line of its own."""
        data = encode_lines(values)
        if data:
            await self.storage.append(self.key, b"\n" + data if self._ends_midline else data)
            self._ends_midline = False


class JsonLinesReader:
    """Reads the lines of an object that grows, each of them once."""

    def __init__(self, storage: Storage, key: str) -> None:
        self.storage = storage
        self.key = key
        self.ends_midline = False
        """Whether the last line had no end when it was last looked at: a crash has torn it."""
        self._etag = ""
        self._end = 0
        self._last_line = b""

    async def read_new(self) -> tuple[bytes, bool]:
        """Return the whole lines that were added since the last call.

        Also returns whether these are all there are: the object is not the one read before.
        """
        etag = await self.storage.etag(self.key)
        if etag == self._etag:
            return b"", False
        start = self._end - len(self._last_line)
        try:
            data, etag = await self.storage.read(self.key, start)
            if start and not data.startswith(self._last_line):
                start = 0
                data, etag = await self.storage.read(self.key)
        except ObjectNotFound:
            start, data, etag = 0, b"", ""
        whole = data[: data.rfind(b"\n") + 1]
        is_anew = not start
        new = whole if is_anew else whole[len(self._last_line) :]
        self.ends_midline = len(whole) < len(data)
        self._etag, self._end = etag, start + len(whole)
        self._last_line = whole[whole.rstrip(b"\n").rfind(b"\n") + 1 :]
        return new, is_anew
