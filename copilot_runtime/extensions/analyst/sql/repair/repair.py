"""Choose the repairs for a failure."""

import re
from collections.abc import Iterator, Mapping

from sqlglot import exp

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.analyst.engine.errors import FailureKind, QueryFailed
from copilot_runtime.extensions.analyst.sql.repair.casts import repair_type
from copilot_runtime.extensions.analyst.sql.repair.columns import (
    repair_ambiguous,
    repair_column,
    repair_qualifier,
)
from copilot_runtime.extensions.analyst.sql.repair.context import (
    Candidate,
    Match,
    RepairContext,
    build_fix,
    build_identifier,
    edit,
    find_name,
    find_select,
    to_sql,
)
from copilot_runtime.extensions.analyst.sql.repair.dialects import (
    parse,
    repair_dialect,
    repair_function,
)
from copilot_runtime.extensions.analyst.sql.repair.syntax import repair_syntax, repair_text
from copilot_runtime.extensions.analyst.sql.rules import SqlCode, SqlRefused

REFUSALS: Mapping[SqlCode, FailureKind] = {
    "table_not_allowed": "table_not_found",
    "function_not_allowed": "function_not_found",
    "parse_error": "syntax",
}
"""Codes of the guard that may be mistakes, mapped to the engine's kinds of failure."""

_CALL = re.compile(r"\b([A-Za-z_]\w*)\s*\(")


def is_repairable(error: CopilotError) -> bool:
    """Return `True` if a failure may be a mistake instead of a forbidden access."""
    if isinstance(error, SqlRefused):
        is_mistake = error.reason != "function_not_allowed" or error.is_unknown
        return error.reason in REFUSALS and is_mistake
    return isinstance(error, QueryFailed)


def repair_sql(sql: str, error: CopilotError, context: RepairContext) -> Iterator[Candidate]:
    """Yield candidate statements, the likeliest first.

    They are unchecked: the caller must pass each through the guard and EXPLAIN before it runs.

    Args:
        sql: The failed statement.
        error: A `QueryFailed` of the engine, or the `SqlRefused` of the guard.
        context: The schema.
    """
    failure = _read_failure(error)
    tree = parse(sql)
    if tree is None:
        yield from repair_syntax(sql, context)
        return
    message = failure.message
    match failure.kind:
        case "column_not_found":
            yield from repair_column(tree, failure, context)
        case "table_not_found" if "Referenced table" not in message:
            yield from repair_table(tree, failure.name, context)
        case "function_not_found" if message.startswith("Table "):
            yield from repair_table(tree, _find_table(message), context)
        case "function_not_found":
            yield from repair_function(tree, failure.name, context)
        case "type_mismatch":
            yield from repair_type(tree, failure, context)
        case "group_by_missing":
            yield from repair_grouping(tree)
        case "ambiguous":
            yield from repair_ambiguous(tree, failure, context)
        case "syntax":
            yield from repair_syntax(sql, context)
            return
        case _:
            yield from repair_qualifier(tree, failure, context)
            yield from repair_type(tree, failure, context)
    yield from repair_text(sql)
    if _has_unknown_call(sql, context):
        yield from repair_dialect(sql, context, may_quote_texts=False)


def _find_table(message: str) -> str | None:
    match = re.search(r'Table with name "?([^"\s]+)"?', message)
    return match[1] if match else None


def _has_unknown_call(sql: str, context: RepairContext) -> bool:
    """Return `True` if SQL calls a function that the engine lacks."""
    names = {name.casefold() for name in _CALL.findall(sql)}
    return bool(context.functions) and bool(names - context.functions - _KEYWORDS)


_KEYWORD_NAMES = (
    "select from where and or not in exists over as by on using values case when then else filter "
    "group order having join with union all any cast try_cast count coalesce if interval distinct "
    "partition between like ilike is limit offset nullif extract within lateral"
)
_KEYWORDS = frozenset(_KEYWORD_NAMES.split())


def _read_failure(error: CopilotError) -> QueryFailed:
    """Convert a refusal of the guard to the failure that the engine would report."""
    if isinstance(error, QueryFailed):
        return error
    kind = REFUSALS[error.reason] if isinstance(error, SqlRefused) else "other"
    return QueryFailed(error.message, kind=kind, name=getattr(error, "name", None))


def repair_grouping(tree: exp.Expr) -> Iterator[Candidate]:
    """Yield the tree with `GROUP BY ALL` in SELECTs that mix aggregates with columns."""
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
    """Return `True` if a SELECT has aggregates but no `GROUP BY ALL`."""
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


_PLACEHOLDER_NAMES = (
    "data dataset data_set df my_table mytable table_name tablename your_table current_dataset "
    "current_table this_table"
)
_PLACEHOLDERS = frozenset(_PLACEHOLDER_NAMES.split())
"""Placeholder names that models use for the question's table."""
_SYSTEM = frozenset({"information_schema", "pg_catalog", "system", "temp", "duckdb"})


def repair_table(tree: exp.Expr, name: str | None, context: RepairContext) -> Iterator[Candidate]:
    """Yield the tree with a missing table replaced by an existing one."""
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
    """Return `True` if a node is the table, or a column qualified by its name."""
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
