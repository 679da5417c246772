"""Repair type errors: values that do not convert become NULL, and are counted."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from sqlglot import exp

from copilot_runtime.extensions.analyst.engine.errors import QueryFailed
from copilot_runtime.extensions.analyst.sql.repair.context import (
    Candidate,
    RepairContext,
    build_fix,
    edit,
    find_select,
    find_source,
    to_sql,
)

_SOURCE = re.compile(r'when casting from source column "?([^"\n]+?)"?\.?$', re.MULTILINE)
_CALL = re.compile(r"argument types '(.+?)\((.*)\)'", re.DOTALL)
_PAIR = re.compile(r"Cannot (?:compare|mix|combine|deduce).*?type|Cannot mix values")
_MIXES = (
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In),
    *(exp.Coalesce, exp.Case, exp.If, exp.Greatest, exp.Least),
)
_OPERATORS = {
    "+": exp.Add,
    "-": exp.Sub,
    "*": exp.Mul,
    "/": exp.Div,
    "//": exp.IntDiv,
    "%": exp.Mod,
    "**": exp.Pow,
    "~~": exp.Like,
    "~~*": exp.ILike,
}
_TIMES = ("DATE", "TIME", "INTERVAL")
_TEXT = "VARCHAR"


def repair_type(
    tree: exp.Expr, failure: QueryFailed, context: RepairContext
) -> Iterator[Candidate]:
    """Yield trees in which values are converted, or become NULL."""
    text = failure.message
    if "according to format specifier" in text:
        yield from _parse_safely(tree, context)
    elif (call := _CALL.search(text)) is not None:
        yield from _cast_arguments(tree, call[1].strip('"'), _split(call[2]), context)
    elif _PAIR.search(text):
        yield from _cast_mixes(tree, None, context)
    elif failure.exception_type == "Conversion" or "convert" in text or "cast" in text:
        source = _SOURCE.search(text)
        name = source[1].rpartition(".")[2] if source else None
        yield from _try_casts(tree, name, context)
        yield from _cast_mixes(tree, name, context)


def _try_casts(tree: exp.Expr, name: str | None, context: RepairContext) -> Iterator[Candidate]:
    """Yield the tree with TRY_CAST for each CAST of a column."""

    def is_cast_of_column(node: exp.Expr) -> bool:
        return type(node) is exp.Cast and any(
            name is None or column.name.casefold() == name.casefold()
            for column in node.this.find_all(exp.Column)
        )

    yield from _wrap(tree, is_cast_of_column, _to_try_cast, name, context)


def _cast_mixes(tree: exp.Expr, name: str | None, context: RepairContext) -> Iterator[Candidate]:
    """Yield the tree with text columns cast to the numbers or times that they are compared with."""
    for target in ("DOUBLE", "TIMESTAMP"):

        def needs_cast(node: exp.Expr, target: str = target) -> bool:
            if not isinstance(node, exp.Column) or not isinstance(node.parent, _MIXES):
                return False
            source = find_source(node, context)
            is_text = source is not None and source[2] == _TEXT
            is_named = name is None or node.name.casefold() == name.casefold()
            return is_text and is_named and _suits(node.parent, node, target, context)

        yield from _wrap(tree, needs_cast, lambda it, to=target: _cast(it, to), name, context)


def _cast_arguments(
    tree: exp.Expr, function: str, types: Sequence[str], context: RepairContext
) -> Iterator[Candidate]:
    """Yield the tree with function arguments cast to a type that the function accepts."""
    has_time = any(it.startswith(_TIMES) for it in types)
    targets = ("TIMESTAMP", "DOUBLE") if has_time else ("DOUBLE", "TIMESTAMP")
    for wrong, targets_of in ((True, targets), (False, (_TEXT,))):
        for target in targets_of:

            def needs_cast(node: exp.Expr, is_text: bool = wrong) -> bool:
                position = _find_position(node, function, len(types), context)
                if position is None or isinstance(node, exp.Literal):
                    return False
                kinds = [_find_type(it, context) for it in node.find_all(exp.Column)]
                if is_text:
                    return types[position] == _TEXT and ("" in kinds or _TEXT in kinds)
                return types[position] != _TEXT and bool(kinds)

            yield from _wrap(tree, needs_cast, lambda it, to=target: _cast(it, to), None, context)


def _parse_safely(tree: exp.Expr, context: RepairContext) -> Iterator[Candidate]:
    def build(node: exp.Expr) -> exp.Expr:
        copy = node.copy()
        copy.set("safe", True)
        return copy

    nodes = [node for node in tree.find_all(exp.StrToTime) if not node.args.get("safe")]
    repaired = edit(
        tree, lambda it: isinstance(it, exp.StrToTime) and not it.args.get("safe"), build, context
    )
    if repaired is not None:
        fix = build_fix("type", to_sql(nodes[0].this), "TRY_STRPTIME")
        yield Candidate(tree=repaired, fix=fix)


def _wrap(
    tree: exp.Expr,
    predicate: Callable[[exp.Expr], bool],
    build: Callable[[exp.Expr], exp.Expr],
    name: str | None,
    context: RepairContext,
) -> Iterator[Candidate]:
    """Yield the tree with each expression that matches the predicate rebuilt."""
    texts: set[str] = set()
    for node in list(tree.walk()):
        if not predicate(node) or (text := context.write(node)) in texts:
            continue
        texts.add(text)
        repaired = edit(
            tree, lambda it, text=text: predicate(it) and context.write(it) == text, build, context
        )
        if repaired is None:
            continue
        inside = node.this if isinstance(node, exp.Cast) else node
        column = inside.find(exp.Column)
        before = name or (column.name if column is not None else to_sql(inside))
        after = build(node)
        probe = build_probe(node, after, context)
        yield Candidate(tree=repaired, fix=build_fix("type", before, to_sql(after)), probe=probe)


def build_probe(node: exp.Expr, after: exp.Expr, context: RepairContext) -> exp.Expr | None:
    """Return a query that has a row if any value converts, or if all values are NULL."""
    if not isinstance(after, exp.TryCast):
        return None
    sources = [find_source(column, context) for column in node.find_all(exp.Column)]
    tables = {source[1].table if source else None for source in sources}
    table = tables.pop() if len(tables) == 1 else None
    if table is None:
        return None
    value, converted = _strip(after.this), _strip(after)
    has_none = exp.EQ(this=exp.Count(this=value), expression=exp.Literal.number(0))
    has_some = exp.GT(this=exp.Count(this=converted), expression=exp.Literal.number(0))
    query = exp.select(exp.alias_(exp.Count(this=exp.Star()), "n")).from_(exp.to_table(table))
    return query.having(exp.or_(has_none, has_some))


def _strip(node: exp.Expr) -> exp.Expr:
    """Return an expression without the table qualifiers of its columns."""
    copy = node.copy()
    for column in list(copy.find_all(exp.Column)):
        column.set("table", None)
    return copy


def _to_try_cast(node: exp.Expr) -> exp.Expr:
    return exp.TryCast(this=node.this.copy(), to=node.args["to"].copy())


def _cast(node: exp.Expr, target: str) -> exp.Expr:
    kind = exp.DataType.build(target, dialect="duckdb")
    build = exp.Cast if target == _TEXT else exp.TryCast
    return build(this=node.copy(), to=kind)


def _find_type(column: exp.Column, context: RepairContext) -> str:
    """Return the type of a column, or an empty string if it is unknown."""
    source = find_source(column, context)
    return "" if source is None else source[2]


def _find_position(node: exp.Expr, function: str, count: int, context: RepairContext) -> int | None:
    """Return the index of the argument that a node is in a function call, or `None`."""
    parent = node.parent
    operator = _OPERATORS.get(function)
    if operator is not None:
        if type(parent) is not operator:
            return None
        return 0 if parent.args.get("this") is node else min(1, count - 1)
    if not isinstance(parent, exp.Func):
        return None
    name = context.write(parent).partition("(")[0].strip().casefold()
    if name != function.casefold():
        return None
    arguments = [it for it in parent.iter_expressions() if not isinstance(it, exp.Var)]
    position = next((at for at, it in enumerate(arguments) if it is node), None)
    if position is None:
        return None
    return position if count == len(arguments) else None if position >= count else position


def _suits(parent: exp.Expr, node: exp.Column, target: str, context: RepairContext) -> bool:
    """Return `True` if the operand beside a column has the kind that the column is cast to."""
    type_prefixes = ("DATE", "TIME") if target == "TIMESTAMP" else _NUMBERS
    for other in parent.iter_expressions():
        if other is node:
            continue
        for leaf in other.walk():
            context.budget.spend()
            if isinstance(leaf, exp.Literal) and not leaf.is_string and target == "DOUBLE":
                return True
            if isinstance(leaf, exp.Cast) and to_sql(leaf.args["to"]).startswith(type_prefixes):
                return True
            source = find_source(leaf, context) if isinstance(leaf, exp.Column) else None
            if source is not None and source[2].startswith(type_prefixes):
                return True
    return False


_NUMBERS = (
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER"),
    *("UBIGINT", "UHUGEINT", "FLOAT", "REAL", "DOUBLE", "DECIMAL", "INT"),
)


def _split(types: str) -> list[str]:
    """Split `VARCHAR, DECIMAL(10,2)` at the commas outside of brackets."""
    parts, depth = [""], 0
    for character in types:
        depth += (character in "(<[") - (character in ")>]")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


_LEFT_OUT = (
    *("group", "having", "qualify", "order", "limit", "offset", "distinct", "windows", "sample"),
    *("expressions", "where", "with", "with_"),
)


def build_null_counts(
    before: exp.Expr, after: exp.Expr, fixes: Collection[str] | None = None
) -> Iterator[tuple[str, exp.Expr]]:
    """Yield each TRY_CAST of a repair as SQL, with a query that counts its NULLs.

    With `fixes`, only those whose SQL is among them.
    """
    casts = {to_sql(node) for node in before.find_all(exp.TryCast)}
    for node in after.find_all(exp.TryCast):
        text = to_sql(node)
        select = find_select(node)
        if (
            text in casts
            or (fixes is not None and text not in fixes)
            or select is None
            or node.find_ancestor(exp.Join, exp.Select) is not select
        ):
            continue
        casts.add(text)
        not_null = exp.Not(this=exp.Is(this=node.this.copy(), expression=exp.Null()))
        lost = exp.Is(this=node.copy(), expression=exp.Null())
        yield text, build_count(select, exp.and_(not_null, lost))


def build_count(select: exp.Select, condition: exp.Expr) -> exp.Expr:
    """Return a query that counts the rows of a SELECT that fulfil a condition, before grouping."""
    query = select.copy()
    for part in _LEFT_OUT:
        query.set(part, None)
    count = exp.Filter(this=exp.Count(this=exp.Star()), expression=exp.Where(this=condition))
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
    """Return the CTEs that are visible to a SELECT, in order."""
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
