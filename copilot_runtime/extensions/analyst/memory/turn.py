"""What one question teaches: patterns of SQL that ran, columns, repairs and failures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import Expr, exp
from sqlglot.errors import SqlglotError

from copilot_runtime.extensions.analyst.memory.entries import Entry
from copilot_runtime.extensions.analyst.memory.privacy import strip_private
from copilot_runtime.extensions.analyst.results import Column, Fix
from copilot_runtime.extensions.analyst.sql.fingerprint import fingerprint_sql
from copilot_runtime.extensions.analyst.sql.parsing import parse_sql

MOST_STATEMENTS = 50
"""Statements of one question from which something is learnt."""

_MOST_SQL = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What happened for one question that was answered."""

    sql: Sequence[str] = ()
    """What ran, as the person may read it. Without any, nothing is learnt."""
    fixes: Sequence[Fix | tuple[str, str]] = ()
    """Repairs that led to a result; or pairs of an error and what repaired it."""
    failures: Sequence[tuple[str, str]] = ()
    """SQL that was refused or failed, and why."""
    columns: Sequence[Column] = ()
    """Those of the table."""


def extract_entries(turn: Turn, table: str) -> Sequence[Entry]:
    """Return what a turn teaches about a table. No literal of its SQL is in it."""
    names = {column.name.lower(): column.name for column in turn.columns}
    entries: list[Entry] = []
    for sql in turn.sql[:MOST_STATEMENTS]:
        tree = _parse(sql)
        if tree is None:
            continue
        entries.append(Entry(kind="pattern", text=extract_pattern(sql)))
        found = _find_columns(tree, table, names)
        entries += [Entry(kind="column", text=name) for name in found]
    entries += [_read_fix(fix) for fix in turn.fixes[:MOST_STATEMENTS]]
    for sql, reason in turn.failures[:MOST_STATEMENTS]:
        text = extract_pattern(sql) or "SQL that cannot be read"
        entries.append(Entry(kind="failure", text=text, detail=strip_private(reason)))
    return [entry for entry in entries if entry.text]


def extract_pattern(sql: str) -> str:
    """Return SQL with `?` in place of each literal; nothing for what is not SQL."""
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
    """Return the columns of a table that SQL uses, each once. `names` are in lower case."""
    aliases = {one.alias_or_name.lower(): one.name.lower() for one in tree.find_all(exp.Table)}
    found: dict[str, None] = {}
    for column in tree.find_all(exp.Column):
        source = column.table.lower()
        is_elsewhere = source in aliases and aliases[source] != table.lower()
        name = names.get(column.name.lower())
        if name is not None and not is_elsewhere:
            found[name] = None
    return [*found]


def _read_fix(fix: Fix | tuple[str, str]) -> Entry:
    if isinstance(fix, tuple):
        error, text = fix
        return Entry(kind="fix", text=strip_private(text, names=None), detail=strip_private(error))
    names = () if fix.kind == "literal" else None
    return Entry(kind="fix", text=strip_private(fix.description, names=names), detail=fix.kind)
