"""The events of a plan, in order: its state is rebuilt from them (event sourcing).

Each event is stored before it takes effect or is shown.
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
"""A person's answer: `approve` or `reject` a task; `retry`, `done` or `fail` for a call or task
that a crash interrupted; `resolve` or `cancel` an assistant's own question."""

QuestionKind = Literal["approval", "interrupted_call", "interrupted_task", "interrupt"]

ANSWERS: Mapping[QuestionKind, tuple[Answer, ...]] = {
    "approval": ("approve", "reject"),
    "interrupted_call": ("retry", "done", "fail"),
    "interrupted_task": ("retry", "done", "fail"),
    "interrupt": ("resolve", "cancel"),
}
"""The possible answers to each kind of question."""

ROOT = "0"
"""The task id of the plan itself, the parent of the top-level tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCreated:
    """A plan was accepted. `request` is the text of the user's request."""

    request: str
    tasks: tuple[Task, ...]
    limits: PlanLimits
    evaluation: str = ""
    """Criteria for the output of the whole plan."""
    needs_approval: bool = False
    thread_id: str = ""
    run_id: str = ""
    user: str | None = None
    agent: str = ""
    traceparent: str = ""
    """The span in which the plan was created, as W3C Trace Context; all of the plan is traced
    there.
    """
    requests: int = 0
    """Requests to the model that wrote the plan; `tokens` and `dollars` are theirs."""
    tokens: int = 0
    dollars: float = 0.0
    type: Literal["plan_created"] = "plan_created"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAssigned:
    """An assistant was elected. `score` is its similarity, 1 at most; `None` if the
    task named it.
    """

    task_id: str
    assistant: str
    score: float | None = None
    is_opaque: bool = False
    """`True` if its tool calls are not visible, so that it cannot resume after a crash."""
    type: Literal["task_assigned"] = "task_assigned"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStarted:
    """An attempt at a task has started."""

    task_id: str
    type: Literal["task_started"] = "task_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStarted:
    """A task is about to call a tool."""

    task_id: str
    call_id: str
    tool: str
    arguments: str
    """The arguments, as JSON."""
    is_idempotent: bool = False
    """`True` if the call may be repeated after a crash."""
    type: Literal["call_started"] = "call_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFinished:
    """A tool call has returned; it is never repeated."""

    task_id: str
    call_id: str
    result: str
    type: Literal["call_finished"] = "call_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageAdded:
    """A model was requested for a task."""

    task_id: str
    tokens: int
    dollars: float = 0.0
    type: Literal["usage_added"] = "usage_added"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEvaluated:
    """The output of a task was evaluated."""

    task_id: str
    round: int
    passed: bool
    missing: str = ""
    """The deficiencies of the output, in a sentence or two."""
    type: Literal["task_evaluated"] = "task_evaluated"


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksAdded:
    """Corrective tasks were added below a task."""

    task_id: str
    tasks: tuple[Task, ...]
    type: Literal["tasks_added"] = "tasks_added"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutput:
    """A task has an output that is not evaluated yet."""

    task_id: str
    output: str
    sources: tuple[str, ...] = ()
    type: Literal["task_output"] = "task_output"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnded:
    """A task has ended; with the root task, the plan has ended."""

    task_id: str
    outcome: Outcome
    reason: str = ""
    """The reason in one sentence, if the task did not finish."""
    type: Literal["task_ended"] = "task_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReopened:
    """A person retries a task that did not finish, and the tasks that were skipped for it."""

    task_id: str
    type: Literal["task_reopened"] = "task_reopened"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPaused:
    """The assistant of a task has paused; its questions to people follow as events."""

    task_id: str
    messages: JsonValue
    """The assistant's conversation so far, as AG-UI messages."""
    type: Literal["task_paused"] = "task_paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAsked:
    """A task waits for the answer of a person."""

    question_id: str
    task_id: str
    kind: QuestionKind
    text: str
    call_id: str = ""
    interrupt: JsonValue = None
    """For questions of the kind `interrupt`: the fields of the assistant's interrupt event."""
    type: Literal["question_asked"] = "question_asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAnswered:
    """A person has answered. `note` is a comment, or for `done` the result of the call or task."""

    question_id: str
    answer: Answer
    note: str = ""
    user: str | None = None
    payload: JsonValue = None
    """The response that the assistant gets."""
    type: Literal["question_answered"] = "question_answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    """A person has requested to stop a task, or the whole plan by its root."""

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
    | StopRequested
)


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """An event in the log of its plan. Numbers start at 1 and have no gaps."""

    number: int
    time: float
    """Seconds since 1970."""
    event: PlanEvent


_KINDS: Mapping[str, type[Any]] = {
    kind.__dataclass_fields__["type"].default: kind for kind in get_args(PlanEvent)
}


def encode_event(event: PlanEvent) -> bytes:
    """Encode an event as JSON."""
    return dumps(_encode_fields(event))


def decode_event(data: bytes) -> PlanEvent:
    """Decode the output of `encode_event`. Raises `Misuse` if it is malformed or unknown."""
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
