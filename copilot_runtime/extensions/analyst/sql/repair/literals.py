"""Repairs text that stands in double quotes, or in none, where SQL expects a column."""

from collections.abc import Iterator
from datetime import datetime

from sqlglot import exp

from copilot_runtime.extensions.analyst.sql.repair.context import (
    Candidate,
    RepairContext,
    edit,
    find_source,
    to_sql,
)
from copilot_runtime.extensions.analyst.sql.repair.sentences import build_fix

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between)
_PATTERNS = (exp.Like, exp.ILike, exp.RegexpLike, exp.RegexpFullMatch, exp.SimilarTo)
_TIME_TYPES = ("DATE", "TIME")


def propose_literal(
    tree: exp.Expr, column: exp.Column, context: RepairContext
) -> Iterator[Candidate]:
    """Yield the tree with a name as a text, if it is compared with a column that has the text."""
    text = column.name
    fix = build_fix("literal", text, to_sql(exp.Literal.string(text)))
    repaired = edit(
        tree,
        lambda node: isinstance(node, exp.Column) and to_sql(node) == to_sql(column),
        lambda _: exp.Literal.string(text),
    )
    if repaired is None:
        return
    if column.this.quoted and _is_pattern(column):
        yield Candidate(tree=repaired, fix=fix)
        return
    comparison = column.find_ancestor(*_COMPARISONS, exp.Select)
    if comparison is None or isinstance(comparison, exp.Select):
        return
    for other in comparison.find_all(exp.Column):
        source = None if other is column else find_source(other, context)
        if source is None:
            continue
        _, place, kind = source
        if kind.startswith(_TIME_TYPES):
            if _is_time(text):
                yield Candidate(tree=repaired, fix=fix)
        elif place.table is not None:
            condition = exp.EQ(
                this=exp.column(other.this.copy()),
                expression=exp.Literal.string(text),
            )
            table = exp.to_table(place.table)
            probe = exp.select("1").from_(table).where(condition).limit(1)
            yield Candidate(tree=repaired, fix=fix, probe=probe)


def _is_pattern(column: exp.Column) -> bool:
    """Return whether a name in double quotes is a pattern or a format: no column is called so."""
    parent = column.parent
    if isinstance(parent, _PATTERNS) and parent.args.get("expression") is column:
        return True
    return "%" in column.name and isinstance(parent, exp.Func)


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
