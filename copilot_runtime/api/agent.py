"""What answers a run, and what stands around it."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from copilot_runtime.api.caller import Caller
from copilot_runtime.api.events import Events

if TYPE_CHECKING:
    from copilot_runtime.api.run_input import RunInput  # whose actions may be agents

DEFAULT_AGENT = "default"
"""What clients call the agent that answers when none is named."""

HistoryOwner = Literal["client", "server"]
"""Whose conversation an agent gets: what the client sends, or what is stored."""


class SupportsRun(Protocol):
    """What is accepted for an `Agent`."""

    def run(self, run: "RunInput") -> Events: ...


class Agent:
    """One way to answer. A class with `run` alone need not inherit from it."""

    description: str = ""
    """What the agent is for; listed for clients, and given to a model that may hand over to it."""
    history: HistoryOwner | None = None
    """Whose conversation it gets; None: as the setting `history` says."""
    url: str = ""
    """Where the agent is, if it is in another process; empty for one in this process."""
    is_replayable: bool = False
    """Whether all its effects are calls of the actions of a run: given a conversation with those
    calls and their results, it goes on from there, and makes none of them again."""
    provider: str = ""
    """Who runs it there, as telemetry calls it, such as `langgraph`."""
    profile: str = ""
    """What it is for in more words than `description`, which are not shown to pages: a planner
    compares them with tasks. Empty: `description`."""
    has_plans: bool = False
    """Whether it makes plans, which people see and touch beside the chat."""
    has_data: bool = False
    """Whether it answers from data sets, which people see beside the chat."""
    executes_actions: bool = False
    """Whether it executes the actions of the server that its model calls, and asks the model
    again. Others end their turn at such a call."""

    def run(self, run: "RunInput") -> Events:
        """Answer one request.

        An async generator. It yields events as `Adapter.stream` does, and results of the calls
        that it executed itself, steps, states, and at most one `Interrupt` for each question to a
        person. A call of one of `run.actions` without a result ends the turn: the runtime executes
        an action of the server and calls `run` again, and the browser executes its own.
        `RunFinished` may be yielded to finish with a `result`; what comes after it is dropped.
        `RunStarted` is not yielded, nor `RunFailed`: an error is raised. `event_order` refuses a
        wrong order and fails the run.
        Errors and cancellation: as for `Adapter.stream`.
        """
        raise NotImplementedError

    def check(self, run: "RunInput") -> None:
        """Raise a `CopilotError` for a run that cannot succeed, before it starts."""

    async def load_state(
        self, thread_id: str, caller: Caller
    ) -> tuple[dict[str, Any], list[Any]] | None:
        """Return the state and messages stored for a thread (a `private_thread_id`) as JSON."""
        del thread_id, caller

    async def open(self) -> None:
        """Get ready, when the server starts. What it raises keeps the server from starting."""

    def find_problems(self) -> Sequence[str]:
        """Return what does not work at the moment, a word each: `/health/ready` has them."""
        return ()

    async def aclose(self) -> None:
        """Release what the agent holds, when the server ends."""


class Middleware(ABC):
    """Stands between the runtime and agents: changes what an agent gets, and what it yields."""

    @abstractmethod
    def wrap(self, agent: Agent, run: "RunInput") -> Agent:
        """Return an agent around the one given, or that one if there is nothing to do.

        Called once for each run of an AG-UI client that is a part of its thread, after its actions
        are known. What the agent around changes of the run, no store, stage or hook sees.
        """

    def mark(self, run: "RunInput") -> "RunInput":
        """Return a run with what its thread stores for the runs after it. Called before `wrap`."""
        return run

    async def aclose(self) -> None:  # noqa: B027
        """Release what the middleware holds, when the server ends."""


AgentsOf = Callable[[Caller], Mapping[str, SupportsRun] | Awaitable[Mapping[str, SupportsRun]]]

Agents = Mapping[str, SupportsRun] | AgentsOf
"""Agents by name, or a function that returns those of a caller, called for every request."""
