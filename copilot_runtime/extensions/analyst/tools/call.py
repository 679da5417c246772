"""Call a tool: the cache, thoughts, limits and failures that all tools have in common."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from copilot_runtime.base.errors import CopilotError, UnknownName
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.analyst.results import ApprovalRequest, ToolResult
from copilot_runtime.extensions.analyst.session import Session, build_call_key
from copilot_runtime.extensions.analyst.tools.cap import fit_output
from copilot_runtime.extensions.analyst.tools.metrics import list_metrics_in
from copilot_runtime.extensions.analyst.tools.model_sql import SqlFailed
from copilot_runtime.extensions.analyst.tools.registry import TOOLS
from copilot_runtime.extensions.analyst.tools.tool import (
    AnalystTool,
    Arguments,
    ToolFailed,
    dump_arguments,
)

logger = logging.getLogger(__name__)

_MAX_MESSAGE = 1_500


async def call_tool(session: Session, name: str, arguments: Mapping[str, Any]) -> ToolResult:
    """Run a tool for a question, and note what it found. Whatever fails is a result, too."""
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
        return hit
    if (note := session.find_decline(name, arguments)) is not None:
        return _decline(session, name, note)
    session.thoughts.emit("tool_use", tool.describe_call(checked), tool_name=name)
    result = await _run(session, tool, checked, arguments)
    if tool.is_cached:
        session.cache.put(key, result)
    return result


def render_output(result: ToolResult) -> str:
    """Return what the model gets: JSON of at most 6,000 characters."""
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
    except Exception as error:  # a bug of ours must not end the answer
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
    """Return what a result depends on: arguments, whose rows, and the data as they are now."""
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
    """Return an error as the model gets it: a sentence, and what it can do about it."""
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
