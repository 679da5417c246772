"""The twelve tools, and how they are called: cache, thoughts, limits and failures."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from copilot_runtime.api.action import Action, ActionContext
from copilot_runtime.base.errors import CopilotError, UnknownName
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonList, JsonObject, JsonValue
from copilot_runtime.extensions.analyst.results import ApprovalRequest, ToolResult
from copilot_runtime.extensions.analyst.session import Session, build_call_key
from copilot_runtime.extensions.analyst.tools.analyze_data import analyze_data
from copilot_runtime.extensions.analyst.tools.compare_data import compare_data
from copilot_runtime.extensions.analyst.tools.describe_data import (
    describe_metric_signals,
    query_kpi_data,
    recall_memory,
    summarize_data,
)
from copilot_runtime.extensions.analyst.tools.metrics import list_metrics_in
from copilot_runtime.extensions.analyst.tools.model_sql import SqlFailed
from copilot_runtime.extensions.analyst.tools.patterns import analyze_patterns
from copilot_runtime.extensions.analyst.tools.plot_data import plot_data
from copilot_runtime.extensions.analyst.tools.query_data import (
    download_data,
    query_data,
    run_sql,
    save_as_dataset,
)
from copilot_runtime.extensions.analyst.tools.tool import (
    AnalystTool,
    Arguments,
    ToolFailed,
    dump_arguments,
)

logger = logging.getLogger(__name__)

_MAX_MESSAGE = 1_500


TOOLS: Mapping[str, AnalystTool] = {
    tool.name: tool
    for tool in (
        *(summarize_data, query_data, analyze_data, compare_data, query_kpi_data, run_sql),
        *(plot_data, analyze_patterns, save_as_dataset, download_data),
        *(describe_metric_signals, recall_memory),
    )
}


async def call_tool(session: Session, name: str, arguments: Mapping[str, Any]) -> ToolResult:
    """Run a tool for a question, and record its result. Failures are returned as results, too."""
    tool = TOOLS.get(name)
    if tool is None:
        return _fail(session, name[:100], UnknownName("tool", name[:100], TOOLS))
    try:
        checked = tool.parse_arguments(arguments)
        key = _build_cache_key(session, tool, checked)
    except CopilotError as error:
        return _fail(session, name, error)
    if tool.is_cached and (hit := session.cache.get(key)) is not None:
        _keep(session, hit)
        if hit.lineage is not None and hasattr(checked, "sql"):
            session.record_sql(hit.lineage.sql, hit.lineage.tables)
        return hit
    if (note := session.find_decline(name, arguments)) is not None:
        return _decline(session, name, note)
    session.thoughts.emit("tool_use", tool.describe_call(checked), tool_name=name)
    result = await _run(session, tool, checked, arguments)
    if tool.is_cached:
        session.cache.put(key, result)
    return result


def render_output(result: ToolResult) -> str:
    """Return a result as text for the model: JSON of at most 6,000 characters."""
    return dumps(result.output).decode()


async def _run(
    session: Session, tool: AnalystTool, checked: Arguments, arguments: Mapping[str, Any]
) -> ToolResult:
    if session.is_approved(tool.name, arguments):
        session.approve(tool.name, dump_arguments(checked))
    try:
        result = await tool.run(session, checked)
    except CopilotError as error:
        return _fail(session, tool.name, error)
    except Exception as error:  # a bug in a tool must not end the answer
        logger.exception("The tool %s failed.", tool.name)
        return _fail(session, tool.name, error)
    if result.approval is not None:
        approval = replace(result.approval, tool=tool.name, arguments=dict(arguments))
        return _request_approval(session, replace(result, approval=approval), approval)
    session.forget_decision(tool.name, arguments)
    session.forget_decision(tool.name, dump_arguments(checked))
    result = replace(result, output=fit_output(result.output))
    _keep(session, result)
    session.thoughts.emit("observation", _summarize(tool, result), tool_name=tool.name)
    return result


def _build_cache_key(session: Session, tool: AnalystTool, checked: Arguments) -> str:
    """Return the cache key of a call: arguments, scope and the versions of the data."""
    data = [
        [one.name, one.version, one.fingerprint, one.row_count] for one in session.list_datasets()
    ]
    place: JsonObject = {
        "scope": session.scope.key,
        "table": session.dataset,
        "data": data,
        "metrics": list_metrics_in(session, session.question),
    }
    return build_call_key(tool.name, {"arguments": dump_arguments(checked), **place})


def _keep(session: Session, result: ToolResult) -> None:
    findings = session.findings
    if result.chart is not None:
        findings.charts.append(result.chart)
    if result.table is not None and (result.title, result.table) not in findings.tables:
        findings.tables.append((result.title, result.table))
    if result.download is not None:
        findings.downloads.append(result.download)
    if result.lineage is not None and result.lineage not in findings.lineage:
        findings.lineage.append(result.lineage)


def _summarize(tool: AnalystTool, result: ToolResult) -> str:
    if result.is_error:
        return f"{tool.name} failed: {result.output['error']}"
    return result.title or f"{tool.name} is done."


def _fail(session: Session, name: str, error: Exception) -> ToolResult:
    output = describe_failure(error)
    session.thoughts.emit("observation", f"{name} failed: {output['error']}", tool_name=name)
    return ToolResult(output=output)


def describe_failure(error: Exception) -> JsonObject:
    """Return an error as JSON for the model: a sentence and a hint."""
    if isinstance(error, SqlFailed):
        return fit_output(error.output)
    if not isinstance(error, CopilotError):
        return {"error": "The tool failed. The server's log says why."}
    if not error.is_hint_public:
        return {"error": error.public[:_MAX_MESSAGE]}
    output: JsonObject = {"error": error.message[:_MAX_MESSAGE]}
    if error.hint:
        output["hint"] = error.hint[:_MAX_MESSAGE]
    if isinstance(error, ToolFailed):
        output = fit_output({**output, **error.details})
    if isinstance(code := getattr(error, "reason", None), str):
        output["code"] = code
    return output


def _decline(session: Session, name: str, note: str) -> ToolResult:
    session.thoughts.emit("decision", f"A person declined {name}.", tool_name=name)
    reason = f" They wrote: {note[:500]}" if note else ""
    return ToolResult(output={"error": f"The person declined {name}.{reason} Do not try it again."})


def _request_approval(
    session: Session, result: ToolResult, approval: ApprovalRequest
) -> ToolResult:
    session.thoughts.emit("decision", approval.question, tool_name=approval.tool)
    output: JsonObject = {"status": "needs_approval", "question": approval.question}
    return replace(result, output=output)


MAX_CHARACTERS = 6_000
"""Maximum length of a result as JSON, in characters."""

FEWEST_ROWS = 10
"""Number of rows below which cells are shortened instead of dropping more rows."""

_CELLS = (1_000, 300, 120, 60, 30, 12)
"""Maximum lengths of texts, tried in order."""

_MAX_ITEMS = 8
"""Maximum number of items of a list or an object inside a shortened cell."""


def fit_output(output: JsonObject) -> JsonObject:
    """Return an output of at most 6,000 characters; a smaller one is returned unchanged.

    Dropped rows are reflected in `returned`, `total_rows` and `truncated`.
    """
    if count_characters(output) <= MAX_CHARACTERS:
        return output
    key = _find_rows(output)
    if key is not None:
        output = _write_compactly(output, key)
        if count_characters(output) <= MAX_CHARACTERS:
            return output
    for length in (None, *_CELLS):
        cut = output if length is None else cast("JsonObject", _shorten(output, length))
        if key is None:
            cut = {**cut, "truncated": True}
            if count_characters(cut) <= MAX_CHARACTERS:
                return cut
            continue
        total = len(cast("JsonList", output[key]))
        count = _count_rows(cut, key)
        if count >= min(total, FEWEST_ROWS if length != _CELLS[-1] else 1):
            return _take_rows(cut, key, count)
    return _drop_members(output)


def count_characters(value: JsonValue) -> int:
    """Return the length of a value as JSON."""
    return len(dumps(value).decode())


def _find_rows(output: JsonObject) -> str | None:
    """Return the key of the longest list."""
    lists = [key for key, value in output.items() if isinstance(value, list) and len(value) > 1]
    return max(lists, key=lambda key: count_characters(output[key]), default=None)


def _write_compactly(output: JsonObject, key: str) -> JsonObject:
    """Return the output with rows as lists and the column names once, if possible."""
    rows = cast("JsonList", output[key])
    names = list(cast("JsonObject", rows[0])) if isinstance(rows[0], dict) else []
    if not names or any(not isinstance(row, dict) or list(row) != names for row in rows):
        return output
    cells = [list(cast("JsonObject", row).values()) for row in rows]
    columns: JsonObject = {} if "columns" in output else {"columns": names}
    return {**output, **columns, key: cells}


def _take_rows(output: JsonObject, key: str, count: int) -> JsonObject:
    rows = cast("JsonList", output[key])
    counts: JsonObject = {"returned": count, "truncated": True}
    if output.get("total_rows") is None and "total_rows" not in output:
        counts["total_rows"] = len(rows)
    return {**output, key: rows[:count], **counts}


def _count_rows(output: JsonObject, key: str) -> int:
    """Return the number of rows that fit, by binary search."""
    low, high = 0, len(cast("JsonList", output[key]))
    while low < high:
        middle = (low + high + 1) // 2
        if count_characters(_take_rows(output, key, middle)) <= MAX_CHARACTERS:
            low = middle
        else:
            high = middle - 1
    return low


def _shorten(value: JsonValue, length: int, depth: int = 0) -> JsonValue:
    """Return a value with texts of at most `length` characters and shortened lists."""
    if isinstance(value, str):
        return value if len(value) <= length else value[: length - 1] + "…"
    if isinstance(value, list):
        items = cast("JsonList", value)
        if depth > 2:
            items = items[:_MAX_ITEMS]
        return [_shorten(item, length, depth + 1) for item in items]
    if isinstance(value, Mapping):
        members = list(cast("JsonObject", value).items())
        if depth > 2:
            members = members[:_MAX_ITEMS]
        return {
            key if depth == 0 else _shorten(key, max(length, 60)): _shorten(item, length, depth + 1)
            for key, item in members
        }
    return value


def _drop_members(output: JsonObject) -> JsonObject:
    """Return only the smallest members of an output, as far as they fit."""
    small: JsonObject = {
        "truncated": True,
        "note": "Too large: ask for fewer columns.",
    }
    for key, value in sorted(output.items(), key=lambda item: count_characters(item[1])):
        if count_characters({**small, key: value}) <= MAX_CHARACTERS:
            small[key] = value
    return small


OnResult = Callable[[ToolResult, ActionContext], Awaitable[None]]
"""Called with each result before its text goes to the model."""


def build_actions(session: "Session", *, on_result: OnResult | None = None) -> list[Action]:
    """Return the tools of a question as actions."""
    return [
        Action(
            name=tool.name,
            description=tool.description,
            parameters=tool.parameters,
            run=partial(_run_tool, session, tool.name, on_result),
            is_idempotent=tool.effect == "none",
        )
        for tool in TOOLS.values()
    ]


async def _run_tool(
    session: "Session",
    name: str,
    on_result: OnResult | None,
    arguments: Mapping[str, Any],
    context: ActionContext,
) -> str:
    result = await call_tool(session, name, arguments)
    if on_result is not None:
        await on_result(result, context)
    return render_output(result)
