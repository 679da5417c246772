"""Repairs the names of tables."""

from collections.abc import Iterator

from sqlglot import exp

from copilot_runtime.extensions.analyst.sql.repair.context import (
    Candidate,
    RepairContext,
    build_identifier,
    edit,
)
from copilot_runtime.extensions.analyst.sql.repair.names import Match, find_name
from copilot_runtime.extensions.analyst.sql.repair.sentences import build_fix

_PLACEHOLDER_NAMES = (
    "data dataset data_set df my_table mytable table_name tablename your_table current_dataset "
    "current_table this_table"
)
_PLACEHOLDERS = frozenset(_PLACEHOLDER_NAMES.split())
"""Names for the table that a question is about, as models write them."""
_SYSTEM = frozenset({"information_schema", "pg_catalog", "system", "temp", "duckdb"})


def repair_table(tree: exp.Expr, name: str | None, context: RepairContext) -> Iterator[Candidate]:
    """Yield the tree with another table for one that is not there."""
    last = (name or "").rpartition(".")[2].strip('"')
    aliases = {cte.alias for cte in tree.find_all(exp.CTE) if cte.alias}
    for table in list(tree.find_all(exp.Table)):
        if not isinstance(table.this, exp.Identifier) or {table.db, table.catalog} & _SYSTEM:
            continue
        if last and last.casefold() != table.name.casefold():
            continue
        is_there = context.find_table(table.name) is not None
        found = (
            Match(context.find_table(table.name) or "", "other schema")
            if is_there and table.db
            else find_name(table.name, [*context.tables, *aliases])
        )
        if found is None and table.name.casefold() in _PLACEHOLDERS and context.dataset:
            found = Match(context.dataset, "the current data set")
        if found is None:
            continue
        before = ".".join(part.name for part in table.parts)
        repaired = edit(
            tree,
            lambda node, table=table: (
                isinstance(node, exp.Table | exp.Column) and _names(node, table)
            ),
            lambda node, name=found.name: _rename(node, name),
        )
        if repaired is not None:
            fix = build_fix("table", before, found.name, found.how)
            yield Candidate(tree=repaired, fix=fix)
            return


def _names(node: exp.Table | exp.Column, table: exp.Table) -> bool:
    """Return whether a node is a table, or a column with its name before it."""
    if isinstance(node, exp.Table):
        return node.parts == table.parts
    return not table.alias and node.table.casefold() == table.name.casefold()


def _rename(node: exp.Expr, name: str) -> exp.Expr:
    copy = node.copy()
    if isinstance(copy, exp.Table):
        copy.set("this", build_identifier(name))
        for part in ("db", "catalog"):
            copy.set(part, None)
    else:
        copy.set("table", build_identifier(name))
        for part in ("db", "catalog"):
            copy.set(part, None)
    return copy
