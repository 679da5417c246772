"""Plans as REST has them: in a list, whole, and event by event."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, assert_never

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.extensions.planner.events import PlanEntry, encode_event
from copilot_runtime.extensions.planner.feed import TaskText
from copilot_runtime.extensions.planner.log import PlanSummary
from copilot_runtime.extensions.planner.plan import Plan
from copilot_runtime.extensions.planner.view import describe_plan


def encode_summary(summary: PlanSummary) -> Mapping[str, Any]:
    """Return a plan in a list. Times are seconds since 1970."""
    return asdict(summary)


def encode_plan(plan: Plan) -> Mapping[str, Any]:
    """Return a plan with its tree, its limits, and the number of its last event."""
    created = plan.created
    return {
        **describe_plan(plan),
        "number": plan.number,
        "user": created.user,
        "thread_id": created.thread_id,
        "run_id": created.run_id,
        "agent": created.agent,
        "trace_id": _find_trace(created.traceparent),
        "limits": asdict(created.limits),
    }


def _find_trace(traceparent: str) -> str:
    """Return the id of the trace of a W3C Trace Context; empty without one."""
    parts = traceparent.split("-")
    return parts[1] if len(parts) > 1 else ""


def encode_frame(item: PlanEntry | TaskText) -> bytes:
    """Return a server-sent event. Those of the log have their number as its id."""
    match item:
        case PlanEntry():
            head = dumps({"number": item.number, "time": item.time})
            return b"id: %d\ndata: %b,%b\n\n" % (
                item.number,
                head[:-1],
                encode_event(item.event)[1:],
            )
        case TaskText():
            fields = {"type": "task_text", "task_id": item.task_id, "delta": item.delta}
            more = {"is_whole": True} if item.is_whole else {}
            return b"data: %b\n\n" % dumps({**fields, **more})
        case _:
            assert_never(item)


def encode_failure(error: CopilotError) -> bytes:
    """Return the server-sent event that ends what cannot be followed any more."""
    return b"data: %b\n\n" % dumps({"type": "error", "message": error.public, "code": error.code})
