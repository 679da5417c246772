"""Agents, which answer runs, and the middleware and stages around them."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from copilot_runtime.api.events import Events
from copilot_runtime.api.identity import Caller

if TYPE_CHECKING:
    from copilot_runtime.api.run_input import RunInput  # whose actions may be agents


DEFAULT_AGENT = "default"
"""The name of the agent that answers if the client names none."""

TOOL_CAPABILITIES: Mapping[str, Any] = {"tools": {"supported": True, "clientProvided": True}}
"""`Agent.capabilities` of an agent that calls actions of the server and of the page."""

APPROVAL_CAPABILITIES: Mapping[str, Any] = {
    **TOOL_CAPABILITIES,
    "humanInTheLoop": {"supported": True, "approvals": True, "interrupts": True},
}
"""The same of an agent that asks a person before some of its calls."""

HistoryOwner = Literal["client", "server"]
"""The source of the history that an agent gets: the client's messages, or the stored thread."""


class SupportsRun(Protocol):
    """The minimum that is accepted in place of an `Agent`."""

    def run(self, run: "RunInput") -> Events: ...


class Agent:
    """Answers runs. A class that only has `run` need not inherit from it."""

    description: str = ""
    """The purpose of the agent, for clients and for models that may hand off to it."""
    history: HistoryOwner | None = None
    """The source of the history it gets; None for the default of the setting `history`."""
    url: str = ""
    """The URL of a remote agent; empty for an agent in this process."""
    is_replayable: bool = False
    """Whether its only side effects are calls of the run's actions, so that it can resume from a
    conversation with those calls and results without repeating them."""
    provider: str = ""
    """The framework or service of a remote agent for telemetry, such as `langgraph`."""
    profile: str = ""
    """A longer description that a planner matches with tasks, not sent to clients. If empty,
    `description` is used."""
    has_plans: bool = False
    """Whether it creates plans, which users see and edit beside the chat."""
    has_data: bool = False
    """Whether it answers from data sets, which users see beside the chat."""
    executes_actions: bool = False
    """Whether it executes server actions itself and continues with the model. Other agents end
    their turn at such a call."""
    capabilities: Mapping[str, Any] = MappingProxyType({})
    """Its capabilities as AG-UI's `AgentCapabilities`, for `useCapabilities()`.
    A category or field that is missing is unknown. https://docs.ag-ui.com/concepts/capabilities"""

    def run(self, run: "RunInput") -> Events:
        """Answer one request.

        An async generator. It yields the events of `Adapter.stream`, and results of calls that it
        executed itself, steps, states, and at most one `Interrupt` per question to a person. A call
        of one of `run.actions` without a result ends the turn: the runtime executes a server
        action and calls `run` again; the browser executes its own. Yield `RunFinished` to finish
        with a `result`; later events are dropped. Do not yield `RunStarted` or `RunFailed`: raise
        errors. `event_order` fails a run whose events are in a wrong order.
        Errors and cancellation work as in `Adapter.stream`.
        """
        raise NotImplementedError

    def check(self, run: "RunInput") -> None:
        """Raise a `CopilotError` for a run that cannot succeed, before it starts."""

    async def load_state(
        self, thread_id: str, caller: Caller
    ) -> tuple[dict[str, Any], list[Any]] | None:
        """Return the stored JSON state and messages of a `private_thread_id`, or None."""
        del thread_id, caller

    async def open(self) -> None:
        """Initialise the agent at startup. An exception aborts the startup."""

    def find_failing_checks(self) -> Sequence[str]:
        """Return the names of the checks that fail at the moment, for `/health/ready`."""
        return ()

    async def aclose(self) -> None:
        """Release the resources of the agent at shutdown."""


class Middleware(ABC):
    """Wraps agents to change their input and their events."""

    @abstractmethod
    def wrap(self, agent: Agent, run: "RunInput") -> Agent:
        """Return a wrapper around `agent`, or `agent` itself if there is nothing to do.

        Called once for each run of an AG-UI client that belongs to its thread, after its actions
        are resolved. Stores, stages and hooks do not see the changes of the wrapper to the run.
        """

    def mark(self, run: "RunInput") -> "RunInput":
        """Return the run, with changes that are stored in its thread. Called before `wrap`."""
        return run

    async def aclose(self) -> None:  # noqa: B027
        """Release the resources of the middleware at shutdown."""


AgentResolver = Callable[[Caller], Mapping[str, SupportsRun] | Awaitable[Mapping[str, SupportsRun]]]

Agents = Mapping[str, SupportsRun] | AgentResolver
"""Agents by name, or a function that returns the agents of a caller, called per request."""


StageFunction = Callable[[Events, "RunInput"], Events]
"""A function from events to events, accepted in place of a `Stage`."""


class Stage:
    """Observes, transforms or rejects the events of a run. A plain function works as well."""

    def __call__(self, events: Events, run: "RunInput") -> Events:
        """Return the transformed events of a run.

        An async generator that reads `events` under `contextlib.aclosing`. It may drop, replace
        and add events; a `…Start` that was yielded needs its `…End`. To refuse a run, raise a
        `CopilotError`. When the run is stopped, the generator is closed, and closes `events`.
        The default returns `events` unchanged.
        """
        del run
        return events

    def check(self, run: "RunInput") -> None:
        """Raise a `CopilotError` to reject a run before it starts."""

    async def aclose(self) -> None:
        """Release the resources of the stage at shutdown."""
