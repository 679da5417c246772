"""The journal of ingested files, which makes ingestion incremental, its reports and its lock.

The journal has a line for each file that was read, could not be read, or was deleted, and one
whenever all resources were up to date. A file's contributions are in a separate record, which is
written before the line that names it, and never changed. A process may end between any two
writes: files without a line are ingested again, and outdated resources are compared again.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import JsonObject, JsonValue, as_count, as_list, get_text
from copilot_runtime.storage import Storage
from copilot_runtime.storage.jsonlines import JsonLines, encode_lines, salvage_lines
from copilot_runtime.storage.lock import StorageLock


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """The progress of an ingestion."""

    stage: Literal["read", "store"]
    """Files are read first, and then resources are stored."""
    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """The status of a file at its last attempt."""

    name: str
    state: Literal["taken in", "in part", "failed", "skipped"]
    message: str = ""
    """Why it failed or was skipped, or the warnings: parts that could not be read, and guesses."""
    read_at: float = 0.0
    """The time at which it was read last, in seconds since 1970; 0 if it never was."""


ProgressHook = Callable[[IngestProgress], None]


@dataclass
class IngestReport:
    """The results of an ingestion: files and resources."""

    new: list[str] = field(default_factory=list[str])
    changed: list[str] = field(default_factory=list[str])
    unchanged: int = 0
    removed: list[str] = field(default_factory=list[str])
    failed: dict[str, str] = field(default_factory=dict[str, str])
    """Errors by file. Earlier contributions of the file are kept."""
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    """Reasons by file: its type has no reader, such as pictures, or it is a symbolic link that
    leads out of the given folder."""
    unmatched: list[str] = field(default_factory=list[str])
    """Patterns that match no file."""
    warnings: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Parts of files that could not be read, and guesses."""
    empty: list[str] = field(default_factory=list[str])
    """New or changed files without content."""
    resources: int = 0
    """Number of new and changed resources that were stored."""
    deleted: int = 0
    """Number of removed resources."""
    triples: int = 0
    """Number of triples in the stored resources."""
    seconds: float = 0.0

    def encode(self) -> JsonObject:
        """Return the JSON form."""
        return {
            "new": [*self.new],
            "changed": [*self.changed],
            "unchanged": self.unchanged,
            "removed": [*self.removed],
            "failed": {**self.failed},
            "skipped": {**self.skipped},
            "unmatched": [*self.unmatched],
            "warnings": {name: [*texts] for name, texts in self.warnings.items()},
            "empty": [*self.empty],
            "resources": self.resources,
            "deleted": self.deleted,
            "triples": self.triples,
            "seconds": round(self.seconds, 3),
        }


_EMPTY = "There is nothing to take in."
_KEY = "ingestion/journal.jsonl"
_RECORDS = "ingestion/records/"


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """The journal entry of a file."""

    name: str
    hash: str
    """Hash of its bytes and of everything else that determines its content."""
    address: str
    """The last part of its IRI."""
    record: str
    """The name of the record of its contribution."""
    parts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Hashes of its contributions to resources, by URI."""
    warnings: Sequence[str] = ()
    """Parts of the file that could not be read, and guesses."""
    read_at: float = 0.0
    """The time at which it was read, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """The contribution of one file to resources."""

    title: str = ""
    media_type: str = ""
    items: Mapping[str, str] = field(default_factory=dict[str, str])
    """The statements about each thing as lines of N-Triples, by its IRI."""
    chunks: Mapping[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    """Chunks of its text, by resource URI."""


async def load_journal(storage: Storage) -> "IngestionJournal":
    """Return the current journal of a storage."""
    journal = IngestionJournal(storage)
    await journal.refresh()
    return journal


class IngestionJournal:
    """The journal of a storage in one process; only the holder of the ingestion lock writes."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._lines = JsonLines(storage, _KEY)
        self.sources: dict[str, SourceEntry] = {}
        self.failures: dict[str, str] = {}
        """The errors of files and folders at the last attempt, by name."""
        self.skipped: dict[str, str] = {}
        """The reasons for skipping files at the last attempt, by name."""
        self.stale: set[str] = set()
        """Resources that may not yet match their files."""
        self._sources_by_uri: dict[str, dict[str, None]] = {}

    async def refresh(self) -> None:
        """Read new lines. The journal must not be used until this returns."""
        lines = await self._lines.read_new()
        if lines.data or lines.is_anew:
            await call(self._replay, lines.data, lines.is_anew)
        self._lines.advance(lines)

    def _replay(self, data: bytes, is_anew: bool) -> None:
        if is_anew:
            for state in (self.sources, self.failures, self.skipped, self.stale):
                state.clear()
            self._sources_by_uri.clear()
        for line in salvage_lines(data):
            name = get_text(line, "source")
            if line.get("merged"):
                self.stale.clear()
            elif "failed" in line:
                _note(self.failures, name, get_text(line, "failed"))
            elif "skipped" in line:
                _note(self.skipped, name, get_text(line, "skipped"))
            else:
                self._apply(name, _decode(line))

    @property
    def uris(self) -> AbstractSet[str]:
        """The resources with at least one contributing file."""
        return self._sources_by_uri.keys()

    def find_sources(self, uri: str) -> list[str]:
        """Return the sorted names of the files that contribute to a resource."""
        return sorted(self._sources_by_uri.get(uri, ()))

    def list_sources(self) -> list[SourceStatus]:
        """Return the status of each file at its last attempt, sorted by name."""
        statuses = {
            name: SourceStatus(
                name=name,
                state="taken in" if entry.parts and not entry.warnings else "in part",
                message=" ".join(entry.warnings) or ("" if entry.parts else _EMPTY),
                read_at=entry.read_at,
            )
            for name, entry in self.sources.items()
        }
        for name, reason in (self.skipped | self.failures).items():
            statuses[name] = SourceStatus(
                name=name,
                state="failed" if name in self.failures else "skipped",
                message=reason,
                read_at=statuses[name].read_at if name in statuses else 0.0,
            )
        return [statuses[name] for name in sorted(statuses)]

    async def write(
        self, read: Iterable[tuple[SourceEntry, Contribution]], gone: Iterable[str] = ()
    ) -> None:
        """Record the contributions of files, and the deleted files."""
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
        await self._lines.append(encode_lines(lines))
        for record in past:
            await self._storage.delete(f"{_RECORDS}{record}.json")

    async def write_failures(self, failures: Mapping[str, str], skipped: Mapping[str, str]) -> None:
        """Record the errors of files or folders, and why files were skipped.

        An empty text clears the previous one.
        """
        lines: list[JsonValue] = []
        for key, state, found in (
            ("failed", self.failures, failures),
            ("skipped", self.skipped, skipped),
        ):
            for name, reason in found.items():
                if state.get(name, "") != reason:
                    lines.append({"source": name, key: reason})
                    _note(state, name, reason)
        await self._lines.append(encode_lines(lines))

    async def read_records(self, names: Iterable[str]) -> dict[str, Contribution]:
        """Return the contributions in records, by name; a missing record is empty."""
        keys = {f"{_RECORDS}{self.sources[name].record}.json": name for name in names}
        found = await self._storage.get_many(keys)
        return {keys[key]: _decode_contribution(loads(data)) for key, data in found.items()}

    async def finish(self) -> None:
        """Record that all resources are up to date."""
        if not self.stale:
            return
        self.stale.clear()
        await self._lines.append(encode_lines([{"merged": True}]))
        if self._lines.is_long(len(self.sources) + len(self.failures) + len(self.skipped)):
            await self.refresh()
            await self._lines.rewrite(self._encode_all)

    async def discard_orphans(self) -> None:
        """Delete records that no line refers to, which an interrupted process has left behind."""
        own = {f"{_RECORDS}{entry.record}.json" for entry in self.sources.values()}
        for key in await self._storage.find_by_prefix(_RECORDS):
            if key not in own:
                await self._storage.delete(key)

    def _encode_all(self) -> bytes:
        lines = [
            *(_encode(entry) for _, entry in sorted(self.sources.items())),
            *({"source": name, "failed": why} for name, why in sorted(self.failures.items())),
            *({"source": name, "skipped": why} for name, why in sorted(self.skipped.items())),
            {"merged": True},
        ]
        return encode_lines(lines)

    def _apply(self, name: str, entry: SourceEntry | None) -> None:
        self.failures.pop(name, None)
        self.skipped.pop(name, None)
        before = self.sources.pop(name, None)
        old = before.parts if before else {}
        new = entry.parts if entry else {}
        if entry:
            self.sources[name] = entry
        for uri in old.keys() - new.keys():
            names = self._sources_by_uri[uri]
            del names[name]
            if not names:
                del self._sources_by_uri[uri]
            self.stale.add(uri)
        for uri, digest in new.items():
            if old.get(uri) != digest:
                self._sources_by_uri.setdefault(uri, {})[name] = None
                self.stale.add(uri)


def _note(state: dict[str, str], name: str, reason: str) -> None:
    if reason:
        state[name] = reason
    else:
        state.pop(name, None)


def _encode(entry: SourceEntry) -> JsonObject:
    line: JsonObject = {
        "source": entry.name,
        "hash": entry.hash,
        "address": entry.address,
        "record": entry.record,
        "parts": {**entry.parts},
        "read_at": entry.read_at,
    }
    return {**line, "warnings": [*entry.warnings]} if entry.warnings else line


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
        [str(text) for text in as_list(line.get("warnings"))],
        float(as_count(line.get("read_at")) or 0),
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


_LOCK_KEY = "ingestion/lock.json"


class IngestionBusy(CopilotError):
    """Another ingestion of the same storage is running."""

    code = "INGESTION_BUSY"
    status_code = 409
    visibility = "banner"
    severity = "warning"
    retryable = True


class IngestionLock(StorageLock):
    """The lock of a running ingestion."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage, _LOCK_KEY)

    def check(self) -> None:
        """Raise `IngestionBusy` if the lock was lost to another process, or has expired."""
        if self.is_lost:
            raise IngestionBusy(
                "This ingestion lost its lock: another one may have taken over.",
                hint="Run it again: it continues with the remaining files.",
            )


@asynccontextmanager
async def lock_ingestion(storage: Storage, *, wait: bool = False) -> AsyncGenerator[IngestionLock]:
    """Hold the lock of a storage, and yield it.

    Raises `IngestionBusy` if it is taken, unless `wait` is set. The lock of a process that was
    killed is taken over.
    """
    lock = IngestionLock(storage)
    if wait:
        await lock.wait()
    elif not await lock.take():
        raise IngestionBusy(
            f"Another ingestion of this storage is running ({lock.holder}).",
            hint="Wait for its end, or let this one wait for it.",
        )
    async with lock.hold():
        yield lock
