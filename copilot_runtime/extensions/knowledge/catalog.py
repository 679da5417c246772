"""The catalog of all resources with their versions: one file instead of a listing."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from copilot_runtime.base.jsonvalue import JsonObject, as_count, drop_none, get_text
from copilot_runtime.extensions.knowledge.identifiers import find_thing, get_type, shorten_uri
from copilot_runtime.storage import Storage
from copilot_runtime.storage.jsonlines import JsonLines, encode_lines, salvage_lines

_LONG = 100_000
"""Minimum size in bytes of lines that are parsed in a thread."""


class CatalogEntry(NamedTuple):
    """The entry of a resource in the catalog."""

    version: str
    type: str
    tokens: int
    etag: str = ""
    """The etag of the object in the storage, which reveals changes by other programs."""


class CatalogChange(NamedTuple):
    """A line of the catalog: the new entry of a resource, or its deletion.

    With `before`, it applies only if the catalog still has that etag: it repairs an outdated
    entry, and is ignored if the entry was changed meanwhile.
    """

    uri: str
    entry: CatalogEntry | None
    before: str | None = None


class Catalog:
    """The entries of all resources, in memory and in one JSON Lines object."""

    def __init__(self, storage: Storage, key: str = "catalog.jsonl") -> None:
        self._lines = JsonLines(storage, key)
        self._entries: dict[str, CatalogEntry] = {}
        self._unread: dict[str, CatalogEntry | None] = {}
        """Changes of this process that it has not yet read back in order with those of others."""
        self.is_read = False
        """Whether the catalog was loaded at least once; its entries may be stale."""
        self._lock = asyncio.Lock()
        self._changes = 0
        """Number of reads that brought changes."""
        self._things: tuple[int, Mapping[str, Sequence[str]]] = 0, {}
        self._keys: tuple[int, Mapping[str, str]] = 0, {}

    @cached_property
    def entries(self) -> Mapping[str, CatalogEntry]:
        """The entries as of the last refresh, by URI."""
        return MappingProxyType(self._entries)

    @property
    def is_missing(self) -> bool:
        """Whether the object was absent at the last read."""
        return self._lines.is_missing

    def find(self, uri: str) -> CatalogEntry | None:
        """Return the last entry of a resource that this process read or wrote, or `None`.

        The entry may be stale; its content always belongs to its etag.
        """
        return self._unread[uri] if uri in self._unread else self._entries.get(uri)

    async def refresh(self) -> Mapping[str, CatalogEntry]:
        """Read the lines that any process has added, and return all entries by URI."""
        async with self._lock:
            await self._read()
        return self.entries

    async def list_things(self) -> Mapping[str, Sequence[str]]:
        """Return the URIs of things as of the last refresh, by the names of `find_thing`.

        The resources with the most tokens come first.
        """
        if self._things[0] != (changes := self._changes):
            things = await asyncio.to_thread(_group_things, dict(self._entries))
            self._things = changes, things
        return self._things[1]

    async def list_keys(self) -> Mapping[str, str]:
        """Return the URIs as of the last refresh, by their keys of `shorten_uri`."""
        if self._keys[0] != (changes := self._changes):
            uris = [*self._entries]
            keys = await asyncio.to_thread(lambda: {shorten_uri(uri): uri for uri in uris})
            self._keys = changes, keys
        return self._keys[1]

    async def append(self, changes: Iterable[CatalogChange]) -> None:
        """Append changes as lines."""
        changes = [*changes]
        await self._lines.append(encode_lines(map(encode_change, changes)))
        await self._note(changes)

    async def append_with_objects(
        self,
        objects: Mapping[str, bytes],
        describe: Callable[[Mapping[str, str]], Iterable[CatalogChange]],
    ) -> dict[str, str]:
        """Write objects, and add the changes that `describe` makes of their etags.

        Returns the resulting etags, which differ from those if another writer was faster.
        """
        changes: list[CatalogChange] = []

        def encode(etags: Mapping[str, str]) -> bytes:
            changes.extend(describe(etags))
            return encode_lines(map(encode_change, changes))

        etags = await self._lines.append_with_objects(objects, encode)
        await self._note(changes)
        return etags

    async def compact(self) -> None:
        """Write one line for each resource, if many lines are old.

        Nothing is written if another process appends at the same time.
        """
        if not self._lines.is_long(len(self._entries)):
            return
        async with self._lock:
            await self._read()
            if self._lines.is_long(len(self._entries)):
                await self._lines.rewrite(lambda: encode_entries(self._entries))

    async def _note(self, changes: Iterable[CatalogChange]) -> None:
        """Store appended changes until they are read back."""
        self._unread.update((change.uri, change.entry) for change in changes)
        await self.compact()

    async def _read(self) -> None:
        """Apply the lines added since the last read."""
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
        self._changes += lines.is_anew or bool(lines.data)
        self.is_read = True
        for uri, entry in unread.items():
            if self._unread[uri] is entry:
                del self._unread[uri]


def _group_things(entries: Mapping[str, CatalogEntry]) -> Mapping[str, Sequence[str]]:
    things: dict[str, list[str]] = {}
    for uri in entries:
        if name := find_thing(uri):
            things.setdefault(name, []).append(uri)
    for uris in things.values():
        uris.sort(key=lambda uri: -entries[uri].tokens)
    return things


def replay(changes: Iterable[CatalogChange], entries: dict[str, CatalogEntry]) -> None:
    """Apply changes to entries."""
    for uri, entry, before in changes:
        current = entries.get(uri)
        if before is not None and before != (current.etag if current else ""):
            continue
        if entry is None:
            entries.pop(uri, None)
        else:
            entries[uri] = entry


def encode_entries(entries: Mapping[str, CatalogEntry]) -> bytes:
    """Return a line for each entry."""
    return encode_lines(encode_change(CatalogChange(uri, entry)) for uri, entry in entries.items())


def encode_change(change: CatalogChange) -> JsonObject:
    """Return the line of a change."""
    line: JsonObject = {"id": change.uri}
    if change.entry is not None:
        entry = change.entry
        line |= {"version": entry.version, "tokens": entry.tokens, "etag": entry.etag}
    return drop_none({**line, "before": change.before})


def decode_changes(data: bytes) -> Iterator[CatalogChange]:
    """Decode the changes of lines; skip lines that a crash left incomplete."""
    for line in salvage_lines(data):
        if change := decode_change(line):
            yield change


def decode_change(line: JsonObject) -> CatalogChange | None:
    """Decode the change of a line; `None` if the line is malformed."""
    uri, version = get_text(line, "id"), get_text(line, "version")
    before = get_text(line, "before") if "before" in line else None
    if not uri:
        return None
    if not version:
        return CatalogChange(uri, None, before)
    tokens = as_count(line.get("tokens")) or 0
    entry = CatalogEntry(version, get_type(uri), tokens, get_text(line, "etag"))
    return CatalogChange(uri, entry, before)
