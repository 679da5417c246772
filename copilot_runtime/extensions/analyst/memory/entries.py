"""The memory of one table, and its decay: immutable values, independent of a store."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Any, Literal, cast, get_args

from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.analyst.prompt.untrusted import cut_lines, quote_line

Kind = Literal["pattern", "column", "fix", "failure"]

DECAY = 0.9
"""The factor by which a hit count decays after each turn that teaches something."""

LEAST_HITS = 0.5
"""An entry with fewer is forgotten."""

LIMITS: Mapping[Kind, int] = {"pattern": 10, "column": 15, "fix": 5, "failure": 5}
"""Entries of each kind that are stored, besides those that are pinned."""

MOST_HITS = 10.0
"""To which the hits tend of what every turn uses."""

MOST_PINS = 20
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEntry:
    """Something that proved useful. It has no values of cells."""

    kind: Kind
    text: str
    """Masked SQL, the name of a column, or what repaired an error."""
    detail: str = ""
    """The error, of a fix and of a failure."""
    hits: float = 1.0
    first_at: str = ""
    last_at: str = ""
    is_pinned: bool = False
    """Whether its owner verified it; a pinned entry does not decay."""
    note: str = ""
    """The owner's comment."""
    id: str = field(default_factory=lambda: token_hex(6))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMemory:
    """The memory of one table, for one owner."""

    entries: Sequence[MemoryEntry] = ()
    schema: Sequence[tuple[str, str]] = ()
    """Names and types of the columns that the table had."""

    def __len__(self) -> int:
        """Count the entries."""
        return len(self.entries)

    def select(self, kind: Kind) -> Sequence[MemoryEntry]:
        """Return the entries of a kind, the most used first."""
        return [entry for entry in self.entries if entry.kind == kind]

    def count(self, uses: Iterable[MemoryEntry], now: str) -> "TableMemory":
        """Return the memory after a turn: all hits decay, and the hits of used entries rise by one.

        Entries are equal if kind and text are.
        """
        entries = {
            (entry.kind, entry.text): entry if entry.is_pinned else _fade(entry)
            for entry in self.entries
        }
        counted: set[tuple[Kind, str]] = set()
        for use in uses:
            name = (use.kind, use.text)
            if name in counted:
                continue
            counted.add(name)
            old = entries.get(name)
            entries[name] = (
                replace(use, hits=1.0, first_at=now, last_at=now)
                if old is None
                else replace(old, hits=old.hits + 1, last_at=now, detail=use.detail or old.detail)
            )
        return replace(self, entries=_evict(entries.values()))

    def weigh(self, ids: Iterable[str], is_good: bool) -> "TableMemory":
        """Return the memory after praise or blame of what entries helped to answer."""
        targets = {*ids}
        entries = [_weigh(one, is_good) if one.id in targets else one for one in self.entries]
        return replace(self, entries=_evict(entries))

    def put(self, entry: MemoryEntry) -> "TableMemory":
        """Return the memory with an entry in place of the one that has its id.

        Raises `Misuse` if too many are pinned.
        """
        entries = [entry if one.id == entry.id else one for one in self.entries]
        if sum(one.is_pinned for one in entries) > MOST_PINS:
            raise Misuse(
                f"No more than {MOST_PINS} entries of a table can be pinned.",
                hint="Unpin one first.",
            )
        return replace(self, entries=_evict(entries))

    def drop(self, id: str) -> "TableMemory":
        """Return the memory without an entry."""
        return replace(self, entries=[one for one in self.entries if one.id != id])


def write_memory(memory: TableMemory) -> str:
    """Return a memory as JSON."""
    value: JsonObject = {
        "version": VERSION,
        "schema": [[*column] for column in memory.schema],
        "entries": [describe_entry(entry) for entry in memory.entries],
    }
    return dumps(value).decode()


def read_memory(text: str | None) -> TableMemory:
    """Return the memory that JSON describes; an empty one for None.

    Raises `ValueError` for what `write_memory` did not write.
    """
    if text is None:
        return TableMemory()
    value: Any = loads(text.encode())
    if not isinstance(value, dict) or value.get("version") != VERSION:
        raise ValueError("it is of another version")
    try:
        schema = [(str(name), str(kind)) for name, kind in value["schema"]]
        entries = [_read_entry(item) for item in value["entries"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"it has another form: {error!r}") from error
    return TableMemory(schema=schema, entries=_evict(entries))


def describe_entry(entry: MemoryEntry) -> JsonObject:
    """Return an entry as JSON."""
    return {
        "id": entry.id,
        "kind": entry.kind,
        "text": entry.text,
        "detail": entry.detail,
        "hits": round(entry.hits, 6),
        "first_seen": entry.first_at,
        "last_seen": entry.last_at,
        "is_pinned": entry.is_pinned,
        "note": entry.note,
    }


def _read_entry(item: Mapping[str, Any]) -> MemoryEntry:
    kind = item["kind"]
    if kind not in get_args(Kind):
        raise ValueError(f"there is no kind {kind!r}")
    return MemoryEntry(
        kind=cast("Kind", kind),
        id=str(item["id"]),
        text=str(item["text"]),
        detail=str(item.get("detail", "")),
        hits=float(item["hits"]),
        first_at=str(item.get("first_seen", "")),
        last_at=str(item.get("last_seen", "")),
        is_pinned=item.get("is_pinned") is True,
        note=str(item.get("note", "")),
    )


def _fade(entry: MemoryEntry) -> MemoryEntry:
    return replace(entry, hits=entry.hits * DECAY)


def _weigh(entry: MemoryEntry, is_good: bool) -> MemoryEntry:
    hits = min(entry.hits + 1, max(entry.hits, MOST_HITS)) if is_good else entry.hits / 2
    return replace(entry, hits=hits)


def _evict(entries: Iterable[MemoryEntry]) -> Sequence[MemoryEntry]:
    """Return the entries that stay: the most used of each kind, and those that are pinned."""
    alive = [one for one in entries if one.is_pinned or one.hits >= LEAST_HITS]
    ranked = sorted(alive, key=lambda one: (one.hits, one.last_at), reverse=True)
    left: dict[Kind, int] = dict(LIMITS)
    stay: list[MemoryEntry] = []
    for entry in ranked:
        if not entry.is_pinned:
            left[entry.kind] -= 1
            if left[entry.kind] < 0:
                continue
        stay.append(entry)
    return stay


MOST_CHARS = 1_000
"""Characters of what goes into each prompt."""

NOTHING = "No memory recorded for this table yet."

_MOST_COLUMNS = 8
_MOST_FIXES = 2
_POINTER = "(recall_memory has everything.)"


def render_compact(memory: TableMemory, limit: int = MOST_CHARS) -> str:
    """Render the most relevant entries in at most `limit` characters, in whole lines."""
    if not memory.entries:
        return ""
    columns = memory.select("column")[:_MOST_COLUMNS]
    lines = [f"- Verified: {_write(entry)}" for entry in memory.entries if entry.is_pinned]
    if columns:
        names = ", ".join(f"{quote_line(one.text)} ({one.hits:.1f})" for one in columns)
        lines.append(f"- Often used columns: {names}")
    lines += [f"- Repair that worked: {_write(one)}" for one in memory.select("fix")[:_MOST_FIXES]]
    lines += [
        f"- Query that worked: {_write(one)}"
        for one in memory.select("pattern")
        if not one.is_pinned
    ]
    lines += [f"- Failed before: {_write(one)}" for one in memory.select("failure")]
    body = cut_lines("\n".join(lines), limit - len(_POINTER) - 1)
    return f"{body}\n{_POINTER}" if body else ""


def render_full(memory: TableMemory, table: str = "") -> str:
    """Return everything, with counts."""
    if not memory.entries:
        return NOTHING
    title = f"Memory of {quote_line(table)}" if table else "Memory"
    sections = [
        _section("Queries that worked (? stands for a value)", memory.select("pattern")),
        _section("Columns by use", memory.select("column")),
        _section("Repairs that worked", memory.select("fix")),
        _section("What was refused or failed", memory.select("failure")),
    ]
    return "\n\n".join([title, *(section for section in sections if section)])


def _section(title: str, entries: Sequence[MemoryEntry]) -> str:
    lines = [f"- {_write(one)} ({one.hits:.2f} hits{_mark(one)})" for one in entries]
    return "\n".join([f"{title}:", *lines]) if lines else ""


def _mark(entry: MemoryEntry) -> str:
    return ", verified by the user" if entry.is_pinned else ""


def _write(entry: MemoryEntry) -> str:
    detail = f" <- {quote_line(entry.detail, 120)}" if entry.detail else ""
    note = f"; note: {quote_line(entry.note, 120)}" if entry.note else ""
    return f"{quote_line(entry.text, 300)}{detail}{note}"
