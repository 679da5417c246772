"""Chooses the repairs of a failure."""

import re
from collections.abc import Iterator, Mapping

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.analyst.engine.errors import FailureKind, QueryFailed
from copilot_runtime.extensions.analyst.sql.refusal import SqlCode, SqlRefused
from copilot_runtime.extensions.analyst.sql.repair.casts import repair_type
from copilot_runtime.extensions.analyst.sql.repair.columns import (
    repair_ambiguous,
    repair_column,
    repair_qualifier,
)
from copilot_runtime.extensions.analyst.sql.repair.context import Candidate, RepairContext
from copilot_runtime.extensions.analyst.sql.repair.dialects import (
    parse,
    repair_dialect,
    repair_function,
)
from copilot_runtime.extensions.analyst.sql.repair.grouping import repair_grouping
from copilot_runtime.extensions.analyst.sql.repair.syntax import repair_syntax, repair_text
from copilot_runtime.extensions.analyst.sql.repair.tables import repair_table

REFUSALS: Mapping[SqlCode, FailureKind] = {
    "table_not_allowed": "table_not_found",
    "function_not_allowed": "function_not_found",
    "parse_error": "syntax",
}
"""Codes of the guard that may be mistakes, and what the engine would call them."""

_CALL = re.compile(r"\b([A-Za-z_]\w*)\s*\(")


def is_repairable(error: CopilotError) -> bool:
    """Return whether a failure may be a mistake, and not what nobody may do."""
    if isinstance(error, SqlRefused):
        is_mistake = error.reason != "function_not_allowed" or error.is_unknown
        return error.reason in REFUSALS and is_mistake
    return isinstance(error, QueryFailed)


def repair_sql(sql: str, error: CopilotError, context: RepairContext) -> Iterator[Candidate]:
    """Yield statements that may be what was meant, the likeliest first.

    None of them is checked: whoever runs one passes it through the guard and EXPLAIN before.

    Args:
        sql: What failed.
        error: A `QueryFailed` of the engine, or what the guard refused.
        context: The names and types that there are.
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
    """Return whether SQL calls a function that the engine lacks."""
    names = {name.casefold() for name in _CALL.findall(sql)}
    return bool(context.functions) and bool(names - context.functions - _KEYWORDS)


_KEYWORD_NAMES = (
    "select from where and or not in exists over as by on using values case when then else filter "
    "group order having join with union all any cast try_cast count coalesce if interval distinct "
    "partition between like ilike is limit offset nullif extract within lateral"
)
_KEYWORDS = frozenset(_KEYWORD_NAMES.split())


def _read_failure(error: CopilotError) -> QueryFailed:
    """Return what the guard refused as the engine would have."""
    if isinstance(error, QueryFailed):
        return error
    kind = REFUSALS[error.reason] if isinstance(error, SqlRefused) else "other"
    return QueryFailed(error.message, kind=kind, name=getattr(error, "name", None))
