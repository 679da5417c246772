"""Counts the values that became NULL by a repair."""

from collections.abc import Iterator
from typing import Any

from sqlglot import exp

from copilot_runtime.extensions.analyst.sql.repair.context import find_select, to_sql

_LEFT_OUT = (
    *("group", "having", "qualify", "order", "limit", "offset", "distinct", "windows", "sample"),
    *("expressions", "where", "with", "with_"),
)


def build_null_counts(before: exp.Expr, after: exp.Expr) -> Iterator[tuple[str, exp.Expr]]:
    """Yield each TRY_CAST that a repair made, as SQL, and a query that counts its NULLs."""
    casts = {to_sql(node) for node in before.find_all(exp.TryCast)}
    for node in after.find_all(exp.TryCast):
        text = to_sql(node)
        select = find_select(node)
        if (
            text in casts
            or select is None
            or node.find_ancestor(exp.Join, exp.Select) is not select
        ):
            continue
        casts.add(text)
        yield text, _build_count(select, node)


def _build_count(select: exp.Select, node: exp.TryCast) -> exp.Expr:
    query = select.copy()
    for part in _LEFT_OUT:
        query.set(part, None)
    not_null = exp.Not(this=exp.Is(this=node.this.copy(), expression=exp.Null()))
    lost = exp.Is(this=node.copy(), expression=exp.Null())
    count = exp.Filter(
        this=exp.Count(this=exp.Star()), expression=exp.Where(this=exp.and_(not_null, lost))
    )
    query.set("expressions", [exp.alias_(count, "n")])
    for condition in _list_conditions(select):
        if condition.find(exp.TryCast) is None:
            query = query.where(condition.copy())
    for cte in _list_ctes(select):
        query = query.with_(cte.alias, as_=cte.this.copy())
    return query


def _list_conditions(select: exp.Select) -> list[exp.Expr]:
    where = select.args.get("where")
    if not isinstance(where, exp.Where):
        return []
    condition = where.this
    return list(condition.flatten()) if isinstance(condition, exp.And) else [condition]


def _list_ctes(select: exp.Select) -> list[exp.CTE]:
    """Return the CTEs that a SELECT may read, in their order."""
    ctes: list[exp.CTE] = []
    node: exp.Expr | None = select
    inner: exp.Expr | None = None
    while node is not None:
        clause: Any = node.args.get("with_") or node.args.get("with")
        earlier: list[exp.CTE] = []
        for cte in clause.expressions if clause is not None else ():
            if cte is inner:
                break
            earlier.append(cte)
        ctes = earlier + ctes
        inner = node if isinstance(node, exp.CTE) else inner
        node = node.parent
    return ctes
