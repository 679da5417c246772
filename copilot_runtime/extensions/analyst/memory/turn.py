"""Extracts memory entries from a question: SQL patterns, columns, repairs and failures."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import Expr, exp
from sqlglot.errors import SqlglotError

from copilot_runtime.extensions.analyst.engine.datasets import Dataset
from copilot_runtime.extensions.analyst.memory.entries import MemoryEntry
from copilot_runtime.extensions.analyst.results import Column, Fix
from copilot_runtime.extensions.analyst.session import Session
from copilot_runtime.extensions.analyst.sql.parsing import fingerprint_sql, parse_sql

MOST_STATEMENTS = 50
"""Maximum number of statements per question from which entries are extracted."""

_MOST_SQL = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The SQL, repairs and failures of one answered question."""

    sql: Sequence[str] = ()
    """Successful SQL, without row filters. If empty, nothing is extracted."""
    fixes: Sequence[Fix | tuple[str, str]] = ()
    """Repairs that led to a result, or pairs of an error and its repair."""
    failures: Sequence[tuple[str, str]] = ()
    """SQL that was refused or failed, with the reason."""
    columns: Sequence[Column] = ()
    """The columns of the table."""


def extract_entries(turn: Turn, table: str) -> Sequence[MemoryEntry]:
    """Return the memory entries of a turn for a table. They contain no literals of its SQL."""
    names = {column.name.lower(): column.name for column in turn.columns}
    entries: list[MemoryEntry] = []
    for sql in turn.sql[:MOST_STATEMENTS]:
        tree = _parse(sql)
        if tree is None:
            continue
        entries.append(MemoryEntry(kind="pattern", text=extract_pattern(sql)))
        found = _find_columns(tree, table, names)
        entries += [MemoryEntry(kind="column", text=name) for name in found]
    entries += [_read_fix(fix) for fix in turn.fixes[:MOST_STATEMENTS]]
    for sql, reason in turn.failures[:MOST_STATEMENTS]:
        text = extract_pattern(sql) or "SQL that cannot be read"
        entries.append(MemoryEntry(kind="failure", text=text, detail=strip_private(reason)))
    return [entry for entry in entries if entry.text]


def extract_pattern(sql: str) -> str:
    """Return SQL with `?` for each literal, or an empty string if the text is not SQL."""
    return "" if _parse(sql) is None else strip_private(fingerprint_sql(sql))


def _parse(sql: str) -> Expr | None:
    if len(sql) > _MOST_SQL:
        return None
    try:
        trees = parse_sql(sql)
    except (SqlglotError, RecursionError, ValueError, TypeError, AttributeError, LookupError):
        return None
    return trees[0] if trees else None


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


def _read_fix(fix: Fix | tuple[str, str]) -> MemoryEntry:
    if isinstance(fix, tuple):
        error, text = fix
        return MemoryEntry(
            kind="fix", text=strip_private(text, names=None), detail=strip_private(error)
        )
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


MOST_CHARS = 120
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

    text = " ".join(text[: 40 * MOST_CHARS].split())
    text = _LITERAL.sub(mask, text)
    for pattern in (_EMAIL, _URL, _UUID, _TOKEN, _NUMBER):
        text = pattern.sub(MASK, text)
    return text if len(text) <= MOST_CHARS else text[: MOST_CHARS - 1].rstrip() + "…"
