"""JSON Lines in a storage: an object to which any number of processes add values, one a line."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from copilot_runtime.base import concurrency
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import JsonObject, JsonValue
from copilot_runtime.storage.storage import (
    ObjectChanged,
    ObjectNotFound,
    Storage,
    StorageFailed,
)

_FEW_LINES = 1000
"""Minimum number of obsolete lines before an object is rewritten."""

_BYTES_AT_ONCE = 1 << 20


class Position(NamedTuple):
    """The position up to which an object was read."""

    end: int = 0
    etag: str = ""
    last_line: bytes = b""
    """The line that ends there, to distinguish a grown object from a rewritten one."""
    line_count: int = 0
    """Number of lines before the position."""


class NewLines(NamedTuple):
    """The complete lines added to an object since the last read."""

    data: bytes
    is_anew: bool
    """Whether these are all lines, because the object was rewritten."""
    position: Position


class JsonLines:
    """The lines of one object, each of which a process reads once, in the order of the object.

    The lines that a process adds itself are read like all others, so that all processes see them
    in one order. Only one task at a time reads lines, applies them, and advances.
    """

    def __init__(self, storage: Storage, key: str) -> None:
        self.key = key
        self._storage = storage
        self._position = Position()
        self._unread = 0
        """Number of lines appended by this process since the last read."""

    @property
    def is_missing(self) -> bool:
        """Whether the object was absent at the last read."""
        return not self._position.etag

    async def read_new(self) -> NewLines:
        """Return the lines added since the last `advance`."""
        self._unread = 0
        end, etag, last_line, count = self._position
        if await self._storage.etag(self.key) == etag:
            return NewLines(b"", False, self._position)
        start = end - len(last_line)
        try:
            data, etag = await self._storage.read(self.key, start)
            if start and not data.startswith(last_line):
                start = 0
                data, etag = await self._storage.read(self.key)
        except ObjectNotFound:
            start, data, etag = 0, b"", ""
        whole = data[: data.rfind(b"\n") + 1]  # a line without an end is being written, or torn
        lines = whole[len(last_line) :] if start else whole
        count = lines.count(b"\n") + (count if start else 0)
        position = Position(start + len(whole), etag, _cut_last_line(whole), count)
        return NewLines(lines, not start, position)

    def advance(self, lines: NewLines) -> None:
        """Mark lines as read."""
        self._position = lines.position

    async def append(self, lines: bytes) -> None:
        """Append lines, such as those of `encode_lines`."""
        if lines:
            await self._storage.append(self.key, lines)
            self._unread += lines.count(b"\n")

    async def append_with_objects(
        self, objects: Mapping[str, bytes], describe: Callable[[Mapping[str, str]], bytes]
    ) -> dict[str, str]:
        """Write objects, and add the lines that `describe` makes of their etags.

        Returns the resulting etags, which differ from those if another writer was faster.
        """
        etags = await self._storage.put_with_log(objects, self.key, describe)
        self._unread += len(objects)
        return etags

    def is_long(self, current: int) -> bool:
        """Return whether most lines are obsolete, given the number of current ones."""
        return self._position.line_count + self._unread > 2 * current + _FEW_LINES

    async def rewrite(self, encode: Callable[[], bytes]) -> None:
        """Replace all lines with those of `encode`, unless lines were added since the last read.

        It is called in a thread. If the storage fails, everything stays as it is.
        """
        data: bytes = await concurrency.call(encode)
        try:
            etag = await self._storage.put(self.key, data, expected=self._position.etag)
        except (ObjectChanged, StorageFailed):  # it stays longer than necessary, which is harmless
            return
        self._position = Position(len(data), etag, _cut_last_line(data), data.count(b"\n"))


def encode_lines(values: Iterable[JsonValue]) -> bytes:
    """Return one JSON line for each value; empty for no values."""
    return b"".join(dumps(value) + b"\n" for value in values)


def salvage_lines(data: bytes) -> Iterator[JsonObject]:
    """Yield the JSON objects of lines; lines torn by a crash are skipped.

    A few lines at a time are split off: all at once would take as much memory again.
    """
    start = 0
    while start < len(data):
        stop = data.find(b"\n", start + _BYTES_AT_ONCE) + 1 or len(data)
        for line in data[start:stop].split(b"\n"):
            try:
                value = loads(line) if line.strip() else None
            except ValueError:
                continue
            if isinstance(value, dict):
                yield value
        start = stop


def _cut_last_line(data: bytes) -> bytes:
    """Return the last complete line."""
    return data[data.rfind(b"\n", 0, max(0, len(data) - 1)) + 1 :]
