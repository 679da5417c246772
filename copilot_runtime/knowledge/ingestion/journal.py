"""What was taken in of which file, so that the next time only differences are work.

The journal has a line for each file that was read or that vanished, and one whenever all
resources were brought up to date. What a file gave is in a record beside it, which is written
before the line that names it, and never changed. A process may end between any two writes: what
has no line is done again, and what is not up to date is compared again.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from copilot_runtime.jsontext import dumps, loads
from copilot_runtime.jsonvalue import JsonObject, JsonValue, get_text
from copilot_runtime.storage import Storage
from copilot_runtime.storage.jsonlines import JsonLines, encode_lines

_KEY = "ingestion/journal.jsonl"
_RECORDS = "ingestion/records/"
_SLACK = 1000
"""Lines that may be of the past before the journal is written anew."""


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """What the journal says of a file."""

    name: str
    hash: str
    """Of its bytes, and of everything else that decides what is read of it."""
    address: str
    """What its IRI ends with."""
    record: str
    """The name of the record of what it gave."""
    parts: Mapping[str, str] = field(default_factory=dict[str, str])
    """A hash of what it gave to each resource, by URI."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one file gives to the resources."""

    title: str = ""
    media_type: str = ""
    items: Mapping[str, str] = field(default_factory=dict[str, str])
    """The statements about each thing as lines of N-Triples, by its IRI."""
    chunks: Mapping[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    """Pieces of its text with their places, by the URIs of their resources."""


async def load_journal(storage: Storage) -> "Journal":
    """Return the journal of a storage, as it is now."""
    journal = Journal(storage)
    await journal.load()
    return journal


class Journal:
    """The journal of a storage, as one process sees it, which alone may write while it holds it."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._lines = JsonLines(storage, _KEY)
        self._count = 0
        self.sources: dict[str, SourceEntry] = {}
        self.stale: set[str] = set()
        """Resources that may not yet be what the files give together."""
        self._givers: dict[str, dict[str, None]] = {}

    async def load(self) -> None:
        """Read the journal."""
        lines = await self._lines.read()
        self._count = len(lines)
        for line in lines:
            if line.get("merged"):
                self.stale.clear()
            else:
                self._apply(get_text(line, "source"), _decode(line))

    @property
    def uris(self) -> AbstractSet[str]:
        """The resources to which some file gives something."""
        return self._givers.keys()

    def givers(self, uri: str) -> list[str]:
        """Return the names of the files that give something to a resource, in order."""
        return sorted(self._givers.get(uri, ()))

    async def write(
        self, read: Iterable[tuple[SourceEntry, Contribution]], gone: Iterable[str] = ()
    ) -> None:
        """Note what files give, and which ones are no more."""
        entries: dict[str, SourceEntry | None] = dict.fromkeys(gone)
        records: dict[str, bytes] = {}
        for entry, contribution in read:
            entries[entry.name] = entry
            records[f"{_RECORDS}{entry.record}.json"] = dumps(_encode_contribution(contribution))
        await self._storage.put_many(records)
        lines: list[JsonValue] = []
        past: list[str] = []
        for name, entry in entries.items():
            before = self.sources.get(name)
            if before and (entry is None or before.record != entry.record):
                past.append(before.record)
            lines.append(_encode(entry) if entry else {"source": name, "gone": True})
            self._apply(name, entry)
        await self._lines.append(lines)
        self._count += len(lines)
        for record in past:
            await self._storage.delete(f"{_RECORDS}{record}.json")

    async def read_records(self, names: Iterable[str]) -> dict[str, Contribution]:
        """Return what files gave; a record that somebody deleted gives nothing."""
        keys = {f"{_RECORDS}{self.sources[name].record}.json": name for name in names}
        found = await self._storage.get_many(keys)
        return {keys[key]: _decode_contribution(loads(data)) for key, data in found.items()}

    async def finish(self) -> None:
        """Note that all resources are up to date."""
        if not self.stale:
            return
        self.stale.clear()
        if self._count > 2 * len(self.sources) + _SLACK:
            await self._rewrite()
        else:
            await self._lines.append([{"merged": True}])
            self._count += 1

    async def discard_orphans(self) -> None:
        """Delete records without a line, which a process left behind that ended midway."""
        own = {f"{_RECORDS}{entry.record}.json" for entry in self.sources.values()}
        for key in await self._storage.find_by_prefix(_RECORDS):
            if key not in own:
                await self._storage.delete(key)

    async def _rewrite(self) -> None:
        lines = [_encode(entry) for _, entry in sorted(self.sources.items())]
        await self._storage.put(_KEY, encode_lines([*lines, {"merged": True}]))
        self._count = len(lines) + 1

    def _apply(self, name: str, entry: SourceEntry | None) -> None:
        before = self.sources.pop(name, None)
        old = before.parts if before else {}
        new = entry.parts if entry else {}
        if entry:
            self.sources[name] = entry
        for uri in old.keys() - new.keys():
            givers = self._givers[uri]
            del givers[name]
            if not givers:
                del self._givers[uri]
            self.stale.add(uri)
        for uri, digest in new.items():
            if old.get(uri) != digest:
                self._givers.setdefault(uri, {})[name] = None
                self.stale.add(uri)


def _encode(entry: SourceEntry) -> JsonObject:
    return {
        "source": entry.name,
        "hash": entry.hash,
        "address": entry.address,
        "record": entry.record,
        "parts": {**entry.parts},
    }


def _decode(line: JsonObject) -> SourceEntry | None:
    if line.get("gone"):
        return None
    parts = line.get("parts")
    return SourceEntry(
        get_text(line, "source"),
        get_text(line, "hash"),
        get_text(line, "address"),
        get_text(line, "record"),
        {uri: str(digest) for uri, digest in parts.items()} if isinstance(parts, dict) else {},
    )


def _encode_contribution(contribution: Contribution) -> JsonObject:
    return {
        "title": contribution.title,
        "media_type": contribution.media_type,
        "items": {**contribution.items},
        "chunks": {**contribution.chunks},
    }


def _decode_contribution(value: JsonObject) -> Contribution:
    items = value.get("items")
    chunks = value.get("chunks")
    return Contribution(
        get_text(value, "title"),
        get_text(value, "media_type"),
        {iri: str(lines) for iri, lines in items.items()} if isinstance(items, dict) else {},
        {uri: chunk for uri, chunk in chunks.items() if isinstance(chunk, dict)}
        if isinstance(chunks, dict)
        else {},
    )
