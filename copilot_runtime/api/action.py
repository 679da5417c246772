"""What a model or an agent may call, and where it comes from."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from copilot_runtime.api.agent import DEFAULT_AGENT, SupportsRun
from copilot_runtime.telemetry.span import NO_SPAN, Span

if TYPE_CHECKING:
    from copilot_runtime.api.run_input import RunInput  # which has actions


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionContext:
    """The request for which an action runs."""

    thread_id: str
    run_id: str
    call_id: str
    properties: Mapping[str, Any]
    headers: Mapping[str, str]
    user: str | None = None
    agent: str = DEFAULT_AGENT
    """What clients call the agent that acts."""
    span: Span = field(default=NO_SPAN, repr=False, compare=False)
    """The span of the call: attributes and events of yours may be added to it."""


RunAction = Callable[[Mapping[str, Any], ActionContext], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something a model may call: `run` runs it, an `agent` takes over, or else the browser acts.

    `parameters` is the JSON schema of an object. `timeout` is in seconds; `None` takes
    the runtime's. With `return_direct`, a text result is also the answer to the person.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    run: RunAction | None = None
    available: Literal["enabled", "remote", "disabled"] = "enabled"
    """`remote` hides a browser action from the model but not from agents."""
    timeout: float | None = None
    return_direct: bool = False
    ends_run: bool = False
    """Whether the model is not asked again, in this run, after it has called this."""
    is_idempotent: bool = False
    """Whether a call that was interrupted may be made again: two have the effect of one."""
    is_drawing: bool = False
    """Whether its arguments are drawn on the page, so that it belongs to the page's own."""
    mcp_server: str = ""
    """The address of the MCP server that it is a tool of; empty for any other action."""
    agent: SupportsRun | None = None

    @property
    def in_browser(self) -> bool:
        """Whether the browser runs it."""
        return self.run is None and self.agent is None


class ActionSource:
    """A place actions come from: a remote endpoint, an MCP server, a registry of yours."""

    async def actions(self, run: "RunInput") -> Sequence[Action]:
        """Return the actions for this run; if it fails, the run continues without them."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Release what the source holds, when the server ends."""
