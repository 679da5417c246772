"""Repairs a missing GROUP BY."""

from collections.abc import Iterator

from sqlglot import exp

from copilot_runtime.extensions.analyst.sql.repair.context import (
    Candidate,
    edit,
    find_select,
    to_sql,
)
from copilot_runtime.extensions.analyst.sql.repair.sentences import build_fix


def repair_grouping(tree: exp.Expr) -> Iterator[Candidate]:
    """Yield the tree with `GROUP BY ALL` where aggregates stand beside columns."""
    places = [select for select in tree.find_all(exp.Select) if _lacks_group(select)]
    for place in places:
        text = to_sql(place)
        repaired = edit(
            tree,
            lambda node, text=text: isinstance(node, exp.Select) and to_sql(node) == text,
            _group,
        )
        if repaired is not None:
            group = place.args.get("group")
            before = to_sql(group).strip() if isinstance(group, exp.Group) else ""
            yield Candidate(tree=repaired, fix=build_fix("group_by", before, "GROUP BY ALL"))


def _lacks_group(select: exp.Select) -> bool:
    """Return whether some of what is selected is an aggregate, and some is not."""
    having = select.args.get("having")
    parts = [*select.expressions, *([having] if isinstance(having, exp.Having) else [])]
    has_aggregate = any(_aggregates(part, select) for part in parts)
    group = select.args.get("group")
    is_all = isinstance(group, exp.Group) and bool(group.args.get("all"))
    return has_aggregate and not is_all


def _aggregates(part: exp.Expr, select: exp.Select) -> bool:
    return any(
        find_select(found) is select and not isinstance(found.parent, exp.Window)
        for found in part.find_all(exp.AggFunc)
    )


def _group(node: exp.Expr) -> exp.Expr:
    copy = node.copy()
    copy.set("group", exp.Group(all=True))
    return copy
