"""The form that is the same for SQL which means the same, as far as metrics can be written."""

from collections.abc import Sequence
from typing import Any

from sqlglot import exp


def canonicalize(tree: exp.Expr) -> str | None:
    """Return a query without what does not change its values; None if it is no plain SELECT.

    Aliases, quotes, the order of conditions and of columns, ORDER BY and LIMIT are left out.
    Literals stay: another value is another metric.
    """
    select = tree.copy()
    if not isinstance(select, exp.Select) or any(select.args.get(it) for it in _OTHERS):
        return None
    _drop_qualifiers(select)
    items = [it.this if isinstance(it, exp.Alias) else it for it in select.expressions]
    group = select.args.get("group")
    groups = _resolve_groups(group, select.expressions) if isinstance(group, exp.Group) else []
    where = select.args.get("where")
    conditions = _flatten(where.this) if isinstance(where, exp.Where) else []
    start: Any = select.args.get("from_") or select.args.get("from")
    parts = [
        sorted(_write(it) for it in items),
        [_write(start.this) if start is not None else ""],
        sorted(_write(it) for it in select.args.get("joins") or []),
        sorted({_write(it) for it in conditions}),
        sorted({_write(it) for it in groups}),
    ]
    return "\n".join("; ".join(part) for part in parts)


_OTHERS = (
    *("with", "with_", "distinct", "having", "qualify", "windows", "laterals", "sample", "offset"),
    "pivots",
)


def _drop_qualifiers(select: exp.Select) -> None:
    """Drop the tables before columns where there is only one."""
    if select.args.get("joins"):
        return
    for table in select.find_all(exp.Table):
        table.set("alias", None)
        table.set("db", None)
    for column in select.find_all(exp.Column):
        column.set("table", None)


def _resolve_groups(group: exp.Group, items: Sequence[exp.Expr]) -> Sequence[exp.Expr]:
    values = [it.this if isinstance(it, exp.Alias) else it for it in items]
    if group.args.get("all"):
        return [it for it in values if it.find(exp.AggFunc) is None]
    aliases = {it.alias.casefold(): it.this for it in items if isinstance(it, exp.Alias)}
    found: list[exp.Expr] = []
    for one in group.expressions:
        if isinstance(one, exp.Literal) and one.name.isdigit() and 0 < int(one.name) <= len(items):
            found.append(values[int(one.name) - 1])
        elif isinstance(one, exp.Column) and not one.table and one.name.casefold() in aliases:
            found.append(aliases[one.name.casefold()])
        else:
            found.append(one)
    return found


def _flatten(condition: exp.Expr) -> Sequence[exp.Expr]:
    if isinstance(condition, exp.Paren):
        return _flatten(condition.this)
    if isinstance(condition, exp.And):
        return [*_flatten(condition.this), *_flatten(condition.expression)]
    return [condition]


def _write(tree: exp.Expr) -> str:
    copy = tree.copy()
    for name in copy.find_all(exp.Identifier):
        name.set("this", name.name.casefold())
        name.set("quoted", False)
    for bracket in list(copy.find_all(exp.Paren)):
        if bracket is not copy and isinstance(bracket.this, exp.Column | exp.Literal | exp.Func):
            bracket.replace(bracket.this)
    if isinstance(copy, exp.Paren):
        copy = copy.this
    return copy.sql(dialect="duckdb", comments=False)
