"""Which resources there are, and in which version: one file in place of a walk through all."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from copilot_runtime.base.jsonvalue import JsonObject, as_count, drop_none, get_text
from copilot_runtime.extensions.knowledge.identifiers import get_type
from copilot_runtime.extensions.storage import Storage
from copilot_runtime.extensions.storage.jsonlines import JsonLines, encode_lines, salvage_lines

_LONG = 100_000
"""Bytes of lines that are parsed in a thread."""


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
        self._lines = JsonLines(storage, key)
        self._entries: dict[str, Entry] = {}
        self._unread: dict[str, Entry | None] = {}
        """What this process has added, until it is read in its place among what others have."""
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
        return self._lines.is_missing

    def find(self, uri: str) -> Entry | None:
        """Return the entry of a resource, as this process last read or wrote it.

        It may be old. What it says of an etag is true in any case.
        """
        return self._unread[uri] if uri in self._unread else self._entries.get(uri)

    async def refresh(self) -> Mapping[str, Entry]:
        """Read what was added since, by whichever process, and return the entries."""
        async with self._lock:
            await self._read()
        return self.entries

    async def append(self, changes: Iterable[Change]) -> None:
        """Add lines."""
        changes = [*changes]
        await self._lines.append(encode_lines(map(encode_change, changes)))
        await self._note(changes)

    async def append_with_objects(
        self,
        objects: Mapping[str, bytes],
        describe: Callable[[Mapping[str, str]], Iterable[Change]],
    ) -> dict[str, str]:
        """Write objects, and add the changes that `describe` makes of their etags.

        Returns the etags that they have then: others than those if somebody wrote meanwhile.
        """
        changes: list[Change] = []

        def encode(etags: Mapping[str, str]) -> bytes:
            changes.extend(describe(etags))
            return encode_lines(map(encode_change, changes))

        etags = await self._lines.append_with_objects(objects, encode)
        await self._note(changes)
        return etags

    async def compact(self) -> None:
        """Write one line for each resource, if many lines are old.

        Nothing is written if somebody adds lines at this moment.
        """
        if not self._lines.is_long(len(self._entries)):
            return
        async with self._lock:
            await self._read()
            if self._lines.is_long(len(self._entries)):
                await self._lines.rewrite(lambda: encode_entries(self._entries))

    async def _note(self, changes: Iterable[Change]) -> None:
        """Remember what was added, until it is read."""
        self._unread.update((change.uri, change.entry) for change in changes)
        await self.compact()

    async def _read(self) -> None:
        """Apply the lines that were added since."""
        unread = dict(self._unread)
        lines = await self._lines.read_new()
        if lines.is_anew or len(lines.data) > _LONG:
            entries = {} if lines.is_anew else dict(self._entries)
            await asyncio.to_thread(replay, decode_changes(lines.data), entries)
            self._entries.clear()
            self._entries.update(entries)
        else:
            replay(decode_changes(lines.data), self._entries)
        self._lines.advance(lines)
        self.is_read = True
        for uri, entry in unread.items():
            if self._unread[uri] is entry:
                del self._unread[uri]


def replay(changes: Iterable[Change], entries: dict[str, Entry]) -> None:
    """Apply changes to entries."""
    for uri, entry, before in changes:
        current = entries.get(uri)
        if before is not None and before != (current.etag if current else ""):
            continue
        if entry is None:
            entries.pop(uri, None)
        else:
            entries[uri] = entry


def encode_entries(entries: Mapping[str, Entry]) -> bytes:
    """Return a line for each entry."""
    return encode_lines(encode_change(Change(uri, entry)) for uri, entry in entries.items())


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
