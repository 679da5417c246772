"""The memory of one table: entries, their extraction from a question, and their decay."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Any, Literal, cast, get_args

from sqlglot import Expr, exp

from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.analyst.engine.datasets import Dataset
from copilot_runtime.extensions.analyst.prompt.untrusted import cut_lines, quote_line
from copilot_runtime.extensions.analyst.results import Column, Fix
from copilot_runtime.extensions.analyst.session import Session
from copilot_runtime.extensions.analyst.sql.parsing import fingerprint_sql, read_statements

Kind = Literal["pattern", "column", "fix", "failure"]

DECAY = 0.9
"""The factor by which a hit count decays after each turn that teaches something."""

LEAST_HITS = 0.5
"""Hit count below which an entry is forgotten."""

LIMITS: Mapping[Kind, int] = {"pattern": 10, "column": 15, "fix": 5, "failure": 5}
"""Maximum number of stored entries of each kind, not counting pinned ones."""

MOST_HITS = 10.0
"""Limit of the hit count of an entry that every turn uses."""

MOST_PINS = 20
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEntry:
    """An entry that proved useful. It contains no cell values."""

    kind: Kind
    text: str
    """Masked SQL, a column name, or the repair of an error."""
    detail: str = ""
    """The error of a fix or a failure."""
    hits: float = 1.0
    first_at: str = ""
    last_at: str = ""
    is_pinned: bool = False
    """`True` if its owner verified it; pinned entries do not decay."""
    note: str = ""
    """The owner's comment."""
    id: str = field(default_factory=lambda: token_hex(6))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMemory:
    """The memory of one table, for one owner."""

    entries: Sequence[MemoryEntry] = ()

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self.entries)

    def select(self, kind: Kind) -> Sequence[MemoryEntry]:
        """Return the entries of a kind, the most used first."""
        return [entry for entry in self.entries if entry.kind == kind]

    def count(self, uses: Iterable[MemoryEntry], now: str) -> "TableMemory":
        """Return the memory after a turn: hits decay, and those of used entries rise by one.

        Entries with the same kind and text are equal.
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
        """Return the memory after positive or negative feedback on these entries."""
        targets = {*ids}
        entries = [_weigh(one, is_good) if one.id in targets else one for one in self.entries]
        return replace(self, entries=_evict(entries))

    def put(self, entry: MemoryEntry) -> "TableMemory":
        """Return the memory with the entry that has the same id replaced.

        Raises `Misuse` if too many entries are pinned.
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
    """Serialise a memory as JSON."""
    value: JsonObject = {
        "version": VERSION,
        "entries": [describe_entry(entry) for entry in memory.entries],
    }
    return dumps(value).decode()


def read_memory(text: str | None) -> TableMemory:
    """Deserialise a memory; `None` becomes an empty one.

    Raises `ValueError` for JSON that `write_memory` did not write.
    """
    if text is None:
        return TableMemory()
    value: Any = loads(text.encode())
    if not isinstance(value, dict) or value.get("version") != VERSION:
        raise ValueError("it is of another version")
    try:
        entries = [_read_entry(item) for item in value["entries"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"it has another form: {error!r}") from error
    return TableMemory(entries=_evict(entries))


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
    """Return the entries to keep: the most used of each kind, and the pinned ones."""
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
"""Maximum length of the memory in each prompt, in characters."""

NOTHING = "No memory recorded for this table yet."

_MOST_COLUMNS = 8
_MOST_FIXES = 2
_POINTER = "(recall_memory has everything.)"


def render_compact(memory: TableMemory) -> str:
    """Render the most relevant entries in at most 1,000 characters, in whole lines."""
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
    body = cut_lines("\n".join(lines), MOST_CHARS - len(_POINTER) - 1)
    return f"{body}\n{_POINTER}" if body else ""


def render_full(memory: TableMemory, table: str = "") -> str:
    """Render all entries, with hit counts."""
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


MOST_STATEMENTS = 50
"""Maximum number of statements per question from which entries are extracted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The SQL, repairs and failures of one answered question."""

    sql: Sequence[str] = ()
    """Successful SQL, without row filters. If empty, nothing is extracted."""
    fixes: Sequence[Fix] = ()
    """Repairs that led to a result."""
    failures: Sequence[tuple[str, str]] = ()
    """SQL that was refused or failed, with the reason."""
    columns: Sequence[Column] = ()
    """The columns of the table."""


def extract_entries(turn: Turn, table: str) -> Sequence[MemoryEntry]:
    """Return the memory entries of a turn for a table. They contain no literals of its SQL."""
    names = {column.name.lower(): column.name for column in turn.columns}
    entries: list[MemoryEntry] = []
    for sql in turn.sql[:MOST_STATEMENTS]:
        trees = read_statements(sql)
        if not trees:
            continue
        entries.append(MemoryEntry(kind="pattern", text=extract_pattern(sql)))
        found = _find_columns(trees[0], table, names)
        entries += [MemoryEntry(kind="column", text=name) for name in found]
    entries += [_read_fix(fix) for fix in turn.fixes[:MOST_STATEMENTS]]
    for sql, reason in turn.failures[:MOST_STATEMENTS]:
        text = extract_pattern(sql) or "SQL that cannot be read"
        entries.append(MemoryEntry(kind="failure", text=text, detail=strip_private(reason)))
    return [entry for entry in entries if entry.text]


def extract_pattern(sql: str) -> str:
    """Return SQL with `?` for each literal, or an empty string if the text is not SQL."""
    return strip_private(fingerprint_sql(sql)) if read_statements(sql) else ""


def _find_columns(tree: Expr, table: str, names: Mapping[str, str]) -> Sequence[str]:
    """Return the distinct columns of a table that SQL uses. `names` are in lower case."""
    aliases = {one.alias_or_name.lower(): one.name.lower() for one in tree.find_all(exp.Table)}
    found: dict[str, None] = {}
    for column in tree.find_all(exp.Column):
        source = column.table.lower()
        is_elsewhere = source in aliases and aliases[source] != table.lower()
        name = names.get(column.name.lower())
        if name is not None and not is_elsewhere:
            found[name] = None
    return [*found]


def _read_fix(fix: Fix) -> MemoryEntry:
    names = () if fix.kind == "literal" else None
    return MemoryEntry(
        kind="fix", text=strip_private(fix.description, names=names), detail=fix.kind
    )


_WORD = re.compile(r"\w+")


def find_lessons(session: Session) -> Sequence[tuple[Dataset, Turn]]:
    """Return the turns of a question, one for each data set that its SQL is about.

    SQL is about the question's data set if it reads that one, or no known one; otherwise about the
    first data set that it reads.
    """
    datasets = {one.name.lower(): one for one in session.list_datasets()}
    first = session.dataset.lower()

    def choose(tables: Sequence[str]) -> str:
        names = [one.lower() for one in tables if one.lower() in datasets]
        return first if first in names or not names else names[0]

    def find_words(sql: str) -> Sequence[str]:
        return _WORD.findall(sql)

    sql = [(choose(session.sql_tables.get(one, ())), one) for one in session.turn_sql]
    failures = [(choose(find_words(one)), (one, why)) for one, why in session.failed_sql]
    lineage = session.findings.lineage
    fixes = [
        (choose(next((each.tables for each in lineage if one in each.fixes), ())), one)
        for one in session.fixes
    ]
    return [
        (
            datasets[name],
            Turn(
                sql=[one for place, one in sql if place == name],
                fixes=[one for place, one in fixes if place == name],
                failures=[one for place, one in failures if place == name],
                columns=datasets[name].columns,
            ),
        )
        for name in dict.fromkeys(place for place, _ in sql)
        if name in datasets  # may have been deleted meanwhile
    ]


_MOST_TEXT = 120
"""Maximum length of a stored text, in characters."""

MASK = "?"

_EMAIL = re.compile(r"[\w.+%-]+@[\w-]+(?:\.[\w-]+)+")
_UUID = re.compile(r"\b[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\b", re.IGNORECASE)
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"]+", re.IGNORECASE)
_TOKEN = re.compile(r"(?<![\w-])(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{24,}(?![\w-])")
_NUMBER = re.compile(r"(?<!\w)\+?\d(?:[ ()./-]?\d){4,}(?!\w)")
_LITERAL = re.compile(r"'((?:[^'\n]|'')*)'")
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


def strip_private(text: str, *, names: Collection[str] | None = ()) -> str:
    """Return one line of at most 120 characters without literals, addresses and long numbers.

    Args:
        text: The text to store.
        names: Allowed texts in single quotes, such as names in error messages; `None` allows all.
    """

    def mask(match: re.Match[str]) -> str:
        quoted = match.group(1)
        is_name = bool(_NAME.fullmatch(quoted)) if names is None else quoted in names
        return match.group(0) if is_name else f"'{MASK}'"

    text = " ".join(text[: 40 * _MOST_TEXT].split())
    text = _LITERAL.sub(mask, text)
    for pattern in (_EMAIL, _URL, _UUID, _TOKEN, _NUMBER):
        text = pattern.sub(MASK, text)
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 1].rstrip() + "…"
