"""What happens to a plan, in the order in which it happened: from these, a plan can be rebuilt.

Each is stored before anybody acts on it, or sees it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import JsonObject, JsonValue
from copilot_runtime.extensions.planner.tasks import PlanLimits, Task, decode_task, encode_task

Outcome = Literal["finished", "failed", "skipped", "stopped"]
"""How a task or a plan ended."""

Answer = Literal["approve", "reject", "retry", "done", "fail", "resolve", "cancel"]
"""What a person may answer: the first two to a task that asks for approval, the next three to a
call of which nobody knows whether it was done, the last two to what an assistant itself asks."""

QuestionKind = Literal["approval", "interrupted_call", "interrupted_task", "interrupt"]

ANSWERS: Mapping[QuestionKind, tuple[Answer, ...]] = {
    "approval": ("approve", "reject"),
    "interrupted_call": ("retry", "done", "fail"),
    "interrupted_task": ("retry", "done", "fail"),
    "interrupt": ("resolve", "cancel"),
}
"""What may be answered to each kind of question."""

ROOT = "0"
"""The id of the plan as a task: those at the top are below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCreated:
    """A plan was accepted. `request` is what the person asked for."""

    request: str
    tasks: tuple[Task, ...]
    limits: PlanLimits
    evaluation: str = ""
    """What a good outcome of the whole looks like."""
    needs_approval: bool = False
    thread_id: str = ""
    run_id: str = ""
    user: str | None = None
    agent: str = ""
    traceparent: str = ""
    """The span under which it was made, as W3C Trace Context has it: all of it is traced there."""
    type: Literal["plan_created"] = "plan_created"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAssigned:
    """An assistant was elected. `score` is how well it fits, 1 at best; None if it was named."""

    task_id: str
    assistant: str
    score: float | None = None
    is_opaque: bool = False
    """Whether its calls of tools cannot be seen, so that it cannot go on where it was."""
    type: Literal["task_assigned"] = "task_assigned"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStarted:
    """A task begins to work, or again."""

    task_id: str
    type: Literal["task_started"] = "task_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStarted:
    """A task calls a tool, right after this."""

    task_id: str
    call_id: str
    tool: str
    arguments: str
    """JSON."""
    is_idempotent: bool = False
    """Whether the call may be made twice."""
    type: Literal["call_started"] = "call_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFinished:
    """A call has a result: it is never made again."""

    task_id: str
    call_id: str
    result: str
    type: Literal["call_finished"] = "call_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageAdded:
    """Requests to models were made for a task."""

    task_id: str
    tokens: int
    dollars: float = 0.0
    type: Literal["usage_added"] = "usage_added"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEvaluated:
    """The outcome of a task was compared with what it should be."""

    task_id: str
    round: int
    passed: bool
    missing: str = ""
    """What is missing, in words."""
    type: Literal["task_evaluated"] = "task_evaluated"


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksAdded:
    """Corrective tasks were added below a task."""

    task_id: str
    tasks: tuple[Task, ...]
    type: Literal["tasks_added"] = "tasks_added"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutput:
    """A task has an output, which is not evaluated yet."""

    task_id: str
    output: str
    sources: tuple[str, ...] = ()
    type: Literal["task_output"] = "task_output"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnded:
    """A task will do nothing more. The end of the root is the end of the plan."""

    task_id: str
    outcome: Outcome
    reason: str = ""
    """Why, in a sentence, if it did not finish."""
    type: Literal["task_ended"] = "task_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReopened:
    """A person has a task done once more that did not finish, and what it kept from happening."""

    task_id: str
    type: Literal["task_reopened"] = "task_reopened"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPaused:
    """The assistant of a task has stopped until people have answered what it asks, right after."""

    task_id: str
    messages: JsonValue
    """Its conversation so far, as AG-UI writes messages."""
    type: Literal["task_paused"] = "task_paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAsked:
    """A task waits for a person."""

    question_id: str
    task_id: str
    kind: QuestionKind
    text: str
    call_id: str = ""
    interrupt: JsonValue = None
    """What the assistant of the task asks, of the kind `interrupt`: the fields of its event."""
    type: Literal["question_asked"] = "question_asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAnswered:
    """A person has answered. `note` is what they wrote, or the result of a call that was done."""

    question_id: str
    answer: Answer
    note: str = ""
    user: str | None = None
    payload: JsonValue = None
    """What the assistant gets that asked."""
    type: Literal["question_answered"] = "question_answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAsked:
    """A person stops a task, or the plan: its root."""

    task_id: str
    type: Literal["stop_asked"] = "stop_asked"


PlanEvent = (
    PlanCreated
    | TaskAssigned
    | TaskStarted
    | CallStarted
    | CallFinished
    | UsageAdded
    | TaskEvaluated
    | TasksAdded
    | TaskOutput
    | TaskEnded
    | TaskReopened
    | TaskPaused
    | QuestionAsked
    | QuestionAnswered
    | StopAsked
)


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """An event in the log of its plan. Numbers begin at 1 and have no gaps."""

    number: int
    time: float
    """Seconds since 1970."""
    event: PlanEvent


_KINDS: Mapping[str, type[Any]] = {
    kind.__dataclass_fields__["type"].default: kind for kind in get_args(PlanEvent)
}


def encode_event(event: PlanEvent) -> bytes:
    """Return an event as JSON."""
    return dumps(_encode_fields(event))


def decode_event(data: bytes) -> PlanEvent:
    """Return the event that `encode_event` was given. Raises `Misuse` for anything else."""
    try:
        fields = loads(data)
        kind = _KINDS[fields["type"]]
        return kind(
            **{
                name: _DECODERS[name](value) if name in _DECODERS else value
                for name, value in fields.items()
            }
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Misuse(
            f"An event of a plan cannot be read: {error}",
            hint="A later version of copilot-runtime may have written it.",
        ) from None


def _encode_fields(event: PlanEvent) -> JsonObject:
    return {
        field.name: _encode_value(value)
        for field in fields(event)
        if (value := getattr(event, field.name)) != field.default or field.name == "type"
    }


def _encode_value(value: Any) -> JsonValue:
    if isinstance(value, tuple):
        return [encode_task(item) if isinstance(item, Task) else item for item in value]
    if isinstance(value, PlanLimits):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return value


_DECODERS: Mapping[str, Callable[[Any], Any]] = {
    "tasks": lambda tasks: tuple(map(decode_task, tasks)),
    "limits": lambda limits: PlanLimits(**limits),
    "sources": tuple,
}
