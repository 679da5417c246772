"""The interfaces between the engine and models: `Elector`, `Worker` and `Supervisor`."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from copilot_runtime.api.budget import Budget
from copilot_runtime.base.jsonvalue import JsonObject, JsonValue
from copilot_runtime.extensions.planner.plan import Plan, TaskState


class Assignment(NamedTuple):
    """The assistant that was elected for a task."""

    assistant: str
    score: float | None = None
    is_opaque: bool = False
    """`True` if its tool calls are not visible, so that it cannot resume after a crash."""


class TaskResult(NamedTuple):
    """The output of a task."""

    output: str
    sources: tuple[str, ...] = ()
    """URIs of the resources that the assistant used."""


class AgentQuestion(NamedTuple):
    """A question that an assistant asks a person during a task."""

    text: str
    interrupt: JsonObject
    """The fields of its interrupt event."""


class Pause(NamedTuple):
    """The result of an assistant that cannot continue before its questions are answered."""

    questions: Sequence[AgentQuestion]
    messages: JsonValue
    """The assistant's conversation so far, from which it resumes."""


class Verdict(NamedTuple):
    """The supervisor's judgement of a task's output."""

    passed: bool
    missing: str = ""
    """The missing parts, in one sentence; empty if the task passed."""
    corrections: JsonValue = None
    """Corrective tasks as the model wrote them, or `None` if none can help."""


class TaskContext(Protocol):
    """The operations of the engine that a worker or supervisor may use for one task."""

    @property
    def plan(self) -> Plan:
        """The plan with its current state, including the outputs of earlier tasks."""
        ...

    async def call_tool(
        self,
        call_id: str,
        tool: str,
        arguments: str,
        run: Callable[[], Awaitable[str]],
        *,
        is_idempotent: bool,
    ) -> str:
        """Make a tool call, store its start and its result, and return the result."""
        ...

    async def check_lease(self) -> None:
        """Raise `LeaseLost` or `StoreFailed` unless this server still has the plan's lease."""
        ...

    @property
    def budget(self) -> Budget:
        """The budget of the task: all its model requests are counted there, and stored."""
        ...

    async def add_usage(self, tokens: int, dollars: float = 0.0) -> None:
        """Count a model request that was sent without the budget."""
        ...

    def emit_text(self, delta: str) -> None:
        """Send a chunk of the assistant's text to the plan's subscribers."""
        ...


class Elector(Protocol):
    """Finds an assistant for each task."""

    async def elect(self, state: TaskState, plan: Plan) -> Assignment:
        """Return the assistant for a task. Raises `CopilotError` if none fits."""
        ...


class Worker(Protocol):
    """Performs tasks that have no subtasks."""

    async def work(self, state: TaskState, context: TaskContext) -> TaskResult | Pause:
        """Perform a task, resuming after the calls that it has already made.

        After a pause, the assistant resumes with the task's `replies`. An exception fails the task.
        """
        ...


class Supervisor(Protocol):
    """Evaluates outputs, and aggregates the outputs of subtasks."""

    async def evaluate(self, state: TaskState, context: TaskContext) -> Verdict:
        """Return the verdict about the output of a task, or about those of its subtasks."""
        ...

    async def summarize(self, state: TaskState, context: TaskContext) -> TaskResult:
        """Return the aggregated output of a task whose subtasks have ended."""
        ...
