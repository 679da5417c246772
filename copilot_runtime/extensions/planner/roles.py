"""Who does what for a plan: three small interfaces, so that the engine knows no model."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from copilot_runtime.base.jsonvalue import JsonObject, JsonValue
from copilot_runtime.extensions.planner.plan import Plan, TaskState


class Assignment(NamedTuple):
    """Who does a task."""

    assistant: str
    score: float | None = None
    is_opaque: bool = False
    """Whether its calls of tools cannot be seen, so that it cannot go on after a crash."""


class TaskResult(NamedTuple):
    """What came out of a task."""

    output: str
    sources: tuple[str, ...] = ()
    """URIs of the resources that it used."""


class AgentQuestion(NamedTuple):
    """What an assistant asks a person in the middle of a task."""

    text: str
    interrupt: JsonObject
    """The fields of its event."""


class Pause(NamedTuple):
    """An assistant can go on only when people have answered."""

    questions: Sequence[AgentQuestion]
    messages: JsonValue
    """Its conversation so far, to go on with."""


class Verdict(NamedTuple):
    """Whether the outcome of a task is what it should be."""

    passed: bool
    missing: str = ""
    """What is missing, in a sentence."""
    corrections: JsonValue = None
    """Corrective tasks as a model writes them; nothing if none can help."""


class TaskContext(Protocol):
    """What a worker may use while it does a task."""

    @property
    def plan(self) -> Plan:
        """The plan, with the outputs of the tasks before this one."""
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
        """Make a call whose beginning and result are stored, and return its result."""
        ...

    async def check_lease(self) -> None:
        """Raise `LeaseLost` or `StoreFailed` unless this server still carries the plan out."""
        ...

    async def add_usage(self, tokens: int, dollars: float | None = 0.0) -> None:
        """Count a request to a model; `dollars` is None if its price is not known."""
        ...

    def check_budget(self) -> None:
        """Raise `BudgetExceeded` if there is nothing left for another request."""
        ...

    def emit_text(self, delta: str) -> None:
        """Show a piece of what the assistant writes to those who follow the task."""
        ...


class Elector(Protocol):
    """Finds an assistant for each task."""

    async def elect(self, state: TaskState, plan: Plan) -> Assignment:
        """Return who does the task. Raises a `CopilotError` if nobody fits."""
        ...


class Worker(Protocol):
    """Does tasks that have no subtasks."""

    async def work(self, state: TaskState, context: TaskContext) -> TaskResult | Pause:
        """Do a task, from the calls on that it has made already. What it raises fails the task.

        After a pause, it is done with the `replies` of the task.
        """
        ...


class Supervisor(Protocol):
    """Judges outcomes, and puts the outputs of subtasks together."""

    async def evaluate(self, state: TaskState, context: TaskContext) -> Verdict:
        """Return whether the output of a task, or of its subtasks, is what it should be."""
        ...

    async def summarize(self, state: TaskState, context: TaskContext) -> TaskResult:
        """Return the output of a task whose subtasks have ended."""
        ...
