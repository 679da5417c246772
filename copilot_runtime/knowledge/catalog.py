"""Which resources there are, and in which version: one file in place of a walk through all."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from copilot_runtime.jsontext import dumps
from copilot_runtime.jsonvalue import JsonObject, as_count, drop_none, get_text
from copilot_runtime.knowledge.identifiers import get_type
from copilot_runtime.storage import ObjectChanged, ObjectNotFound, Storage
from copilot_runtime.storage.jsonlines import salvage_lines

_FEW_LINES = 1000
"""So many old lines are not worth writing the catalog anew."""


class Entry(NamedTuple):
    """What the catalog holds of a resource."""

    version: str
    type: str
    tokens: int
    etag: str = ""
    """That of the object in the storage, by which a change from outside is seen."""


class Change(NamedTuple):
    """A line of the catalog: what a resource is from now on, or that it is gone.

    With `before`, it counts only if that is the etag that the catalog had: it mends what the
    catalog says, and is late if somebody has written meanwhile.
    """

    uri: str
    entry: Entry | None
    before: str | None = None


class Catalog:
    """The entries of all resources, in memory and in one JSON Lines object."""

    def __init__(self, storage: Storage, key: str = "catalog.jsonl") -> None:
        self._storage = storage
        self.key = key
        self._entries: dict[str, Entry] = {}
        self._etag = ""
        self._end = 0
        self._last_line = b""
        self._ends_midline = False
        self._lines = 0
        self.is_read = False
        """Whether there are entries, be they old."""
        self._lock = asyncio.Lock()

    @cached_property
    def entries(self) -> Mapping[str, Entry]:
        """What the catalog said when it was last refreshed."""
        return MappingProxyType(self._entries)

    @property
    def is_missing(self) -> bool:
        """Whether there was no such object when it was last read."""
        return not self._etag

    async def refresh(self) -> Mapping[str, Entry]:
        """Read what was added since, by whichever process, and return the entries."""
        self.is_read = True
        async with self._lock:
            etag = await self._storage.etag(self.key)
            if etag != self._etag:
                await self._read()
        return self.entries

    async def append(self, changes: Iterable[Change]) -> None:
        """Add lines and apply them."""
        if changes := [*changes]:
            await self._storage.append(self.key, self.encode(changes))
            self.apply(changes)

    def encode(self, changes: Iterable[Change]) -> bytes:
        """Return lines to append to the object. One that a crash has torn ends before them."""
        start = b"\n" if self._ends_midline else b""
        return start + b"".join(dumps(encode_change(change)) + b"\n" for change in changes)

    def apply(self, changes: Iterable[Change]) -> None:
        """Take in changes whose lines were appended."""
        self._lines += replay(changes, self._entries)

    async def compact(self) -> None:
        """Write one line for each resource, if many lines are old.

        Nothing is written if somebody adds lines at this moment.
        """
        if not self._is_long():
            return
        async with self._lock:
            await self._read()
            entries = dict(self._entries)
            data = await asyncio.to_thread(encode_entries, entries)
            try:
                etag = await self._storage.put(self.key, data, expected=self._etag)
            except ObjectChanged:
                return
            self._lines = len(entries)
            self._note_end(data, len(data), etag)

    def _is_long(self) -> bool:
        return self._lines > 2 * len(self._entries) + _FEW_LINES

    async def _read(self) -> None:
        """Read the end of the object, or all of it if it is not the one read before."""
        start = self._end - len(self._last_line)
        try:
            data, etag = await self._storage.read(self.key, start)
            if start and not data.startswith(self._last_line):
                start = 0
                data, etag = await self._storage.read(self.key)
        except ObjectNotFound:
            start, data, etag = 0, b"", ""
        whole = data[: data.rfind(b"\n") + 1]
        if start:
            self.apply(decode_changes(whole))
        else:
            entries: dict[str, Entry] = {}
            self._lines = await asyncio.to_thread(lambda: replay(decode_changes(whole), entries))
            self._entries.clear()
            self._entries.update(entries)
        self._ends_midline = len(whole) < len(data)
        self._note_end(whole, start + len(whole), etag)

    def _note_end(self, lines: bytes, end: int, etag: str) -> None:
        """Remember up to where the object was read, and the last line there."""
        self._etag, self._end = etag, end
        self._last_line = lines[lines.rstrip(b"\n").rfind(b"\n") + 1 :]


def replay(changes: Iterable[Change], entries: dict[str, Entry]) -> int:
    """Apply changes to entries, and return how many changes there were."""
    count = 0
    for uri, entry, before in changes:
        count += 1
        current = entries.get(uri)
        if before is not None and before != (current.etag if current else ""):
            continue
        if entry is None:
            entries.pop(uri, None)
        else:
            entries[uri] = entry
    return count


def encode_entries(entries: Mapping[str, Entry]) -> bytes:
    """Return a line for each entry."""
    return b"".join(
        dumps(encode_change(Change(uri, entry))) + b"\n" for uri, entry in entries.items()
    )


def encode_change(change: Change) -> JsonObject:
    """Return the line of a change."""
    line: JsonObject = {"id": change.uri}
    if change.entry is not None:
        entry = change.entry
        line |= {"version": entry.version, "tokens": entry.tokens, "etag": entry.etag}
    return drop_none({**line, "before": change.before})


def decode_changes(data: bytes) -> Iterator[Change]:
    """Read the changes of lines; a line without one, as a crash may leave it, is left out."""
    for line in salvage_lines(data):
        if change := decode_change(line):
            yield change


def decode_change(line: JsonObject) -> Change | None:
    """Read the change of a line; None of a line that has none."""
    uri, version = get_text(line, "id"), get_text(line, "version")
    before = get_text(line, "before") if "before" in line else None
    if not uri:
        return None
    if not version:
        return Change(uri, None, before)
    tokens = as_count(line.get("tokens")) or 0
    entry = Entry(version, get_type(uri), tokens, get_text(line, "etag"))
    return Change(uri, entry, before)
