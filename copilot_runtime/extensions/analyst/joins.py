"""The joins of a query, with the keys by which their sides are matched."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from sqlglot import exp

from copilot_runtime.extensions.analyst.sql.repair.context import (
    RepairContext,
    Source,
    find_source,
    list_sources,
)

_REPEATABLE = (exp.Sum, exp.Avg, exp.Count, exp.Median, exp.Stddev)


class JoinKey(NamedTuple):
    """The columns by which one side of a join is matched."""

    alias: str
    table: str
    columns: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(f"{self.table}.{name}" for name in self.columns)


class Join(NamedTuple):
    """The sides of a join, and whether the query aggregates anything, or columns of a side."""

    left: JoinKey
    right: JoinKey
    has_aggregates: bool
    uses_left: bool
    uses_right: bool


def read_join(select: exp.Select, join: exp.Join, context: RepairContext) -> Join | None:
    """Return a join with the keys of both sides, or `None` if they are ambiguous."""
    keys = _read_keys(select, join, context)
    if keys is None:
        return None
    left, right = keys
    return Join(
        left,
        right,
        has_aggregates=bool(list_aggregates(select)),
        uses_left=_aggregates_of(select, left.alias, context),
        uses_right=_aggregates_of(select, right.alias, context),
    )


def _read_keys(
    select: exp.Select, join: exp.Join, context: RepairContext
) -> tuple[JoinKey, JoinKey] | None:
    """Return the keys of a join, of the other and the joined table; `None` if unclear."""
    sources = list_sources(select, context)
    own = join.this.alias_or_name.casefold()
    pairs = [*_list_pairs(join, own, sources, context)]
    others = {left.table.casefold() for left, _ in pairs}
    if len(others) != 1:
        return None
    other = others.pop()
    tables = [sources[it].table if it in sources else None for it in (other, own)]
    if tables[0] is None or tables[1] is None:
        return None
    return (
        JoinKey(other, tables[0], tuple(left.name for left, _ in pairs)),
        JoinKey(own, tables[1], tuple(right.name for _, right in pairs)),
    )


def _list_pairs(
    join: exp.Join, own: str, sources: Mapping[str, Source], context: RepairContext
) -> Iterator[tuple[exp.Column, exp.Column]]:
    """Yield pairs of columns that a join equates: of another table, and of the joined one."""
    using = join.args.get("using") or []
    for name in using:
        other = next((it for it in sources if it != own), "")
        yield exp.column(name.name, table=other), exp.column(name.name, table=own)
    condition = join.args.get("on")
    parts = [*condition.flatten()] if isinstance(condition, exp.And) else [condition]
    for part in parts:
        if not isinstance(part, exp.EQ):
            continue
        sides = [_name_source(it, context) for it in (part.this, part.expression)]
        left, right = sides
        if left is None or right is None:
            continue
        if left.table == own and right.table != own:
            left, right = right, left
        if right.table == own and left.table != own:
            yield left, right


def _name_source(node: exp.Expr, context: RepairContext) -> exp.Column | None:
    """Return a column qualified by the lower-case alias of its table, or `None`."""
    found = find_source(node, context) if isinstance(node, exp.Column) else None
    return None if found is None else exp.column(node.name, table=found[0])


def _aggregates_of(select: exp.Select, alias: str, context: RepairContext) -> bool:
    """Return `True` if columns of one side of a join are summed, averaged or counted."""
    for node in list_aggregates(select):
        if not isinstance(node, _REPEATABLE) or isinstance(node.this, exp.Distinct):
            continue
        for column in node.find_all(exp.Column):
            found = find_source(column, context)
            if found is not None and found[0] == alias:
                return True
    return False


def list_aggregates(select: exp.Select) -> Sequence[exp.AggFunc]:
    """Return the aggregates of a SELECT, without those of its subqueries."""
    return [
        node
        for part in select.expressions
        for node in part.find_all(exp.AggFunc)
        if node.find_ancestor(exp.Select) is select
    ]
