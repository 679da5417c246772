"""Publishes the entries of plans as resource events."""

from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime

from copilot_runtime.base.jsonvalue import JsonObject, JsonValue
from copilot_runtime.extensions.events.publisher import EventPublisher
from copilot_runtime.extensions.knowledge.events.event import ResourceEvent
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.policies.ownership import (
    conversation_identifier,
    shorten_name,
)
from copilot_runtime.extensions.planner.events import (
    ROOT,
    PlanEntry,
    PlanEvent,
    QuestionAnswered,
    UsageAdded,
)
from copilot_runtime.extensions.planner.plan import Plan

SOURCE = "plans"

_CONTENT = {"request", "arguments", "result", "output", "note", "missing", "reason", "text"}
_PRIVATE = frozenset({*_CONTENT, "type", "traceparent"})
"""Fields that are never published: text of people, models and tools stays in the plan's log."""

_MAX_LENGTH = 300


class PlanEventPublisher:
    """Plan listener that publishes all entries except model usage."""

    def __init__(self, publisher: EventPublisher) -> None:
        self._publisher = publisher

    def on_entry(self, plan: Plan, entry: PlanEntry) -> None:
        """Queue an entry for publication."""
        if plan.created.thread_id and not isinstance(entry.event, UsageAdded):
            self._publisher.publish_soon(build_plan_event(plan, entry))


def build_plan_event(plan: Plan, entry: PlanEntry) -> ResourceEvent:
    """Return the resource event of an entry; its id is the same each time."""
    task_id = ROOT if isinstance(entry.event, QuestionAnswered) else _get_task_id(entry.event)
    state = plan.tasks[task_id]
    detail: JsonObject = {"plan_id": plan.id, "number": entry.number, "task_id": task_id}
    return ResourceEvent(
        id=f"plan-{plan.id}-{entry.number}",
        source=SOURCE,
        detail_type=entry.event.type.upper(),
        resources=(identify_task(plan, task_id),),
        time=datetime.fromtimestamp(entry.time, UTC).isoformat(),
        detail={**detail, "name": state.task.name, "status": state.status, **_pick(entry.event)},
    )


def _get_task_id(event: PlanEvent) -> str:
    return getattr(event, "task_id", ROOT)


def _pick(event: PlanEvent) -> Mapping[str, JsonValue]:
    """Return the numbers, flags and short strings of an event that are not content."""
    values = {field.name: getattr(event, field.name) for field in fields(event)}
    return {
        name: value[:_MAX_LENGTH] if isinstance(value, str) else value
        for name, value in values.items()
        if name not in _PRIVATE and isinstance(value, str | int | float) and value not in ("", 0)
    }


TASK = "plan.Task"
MESSAGE = "common.Message"


def identify_task(plan: Plan, task_id: str) -> Identifier:
    """Return the identifier of a task; `ROOT` stands for the plan itself."""
    identifier = Identifier(TASK, plan.id, str(identify_message(plan)))
    for place in task_id.split(".") if task_id != ROOT else ():
        identifier = Identifier(TASK, place, str(identifier))
    return identifier


def identify_message(plan: Plan) -> Identifier:
    """Return the identifier of the message that requested a plan."""
    created = plan.created
    conversation = conversation_identifier(created.user, created.thread_id)
    return Identifier(MESSAGE, shorten_name(created.run_id or plan.id), str(conversation))
