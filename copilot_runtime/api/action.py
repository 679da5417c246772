"""Actions (tools) that a model or an agent may call, and the sources that supply them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from copilot_runtime.api.agent import DEFAULT_AGENT, SupportsRun
from copilot_runtime.base.dataclass_copy import fill_at_once
from copilot_runtime.telemetry.span import NO_SPAN, Span

if TYPE_CHECKING:
    from copilot_runtime.api.run_input import RunInput  # which has actions


@dataclass(frozen=True, kw_only=True)  # no slots, for `copy_with`
class ActionContext:
    """The request for which an action runs."""

    thread_id: str
    run_id: str
    call_id: str
    properties: Mapping[str, Any]
    headers: Mapping[str, str]
    user: str | None = None
    agent: str = DEFAULT_AGENT
    """The name of the agent that made the call."""
    span: Span = field(default=NO_SPAN, repr=False, compare=False)
    """The span of the call, to which an action may add attributes and events."""


RunAction = Callable[[Mapping[str, Any], ActionContext], Awaitable[Any]]


@fill_at_once
@dataclass(frozen=True, kw_only=True)  # no slots, for `fill_at_once`
class Action:
    """A tool that a model may call; executed by `run`, by a handoff to `agent`, or in the browser.

    `parameters` is the JSON schema of an object. `timeout` is in seconds; `None` means
    the default of the runtime. With `return_direct`, a text result also becomes the answer.
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
    """Whether a call ends the run, without another request to the model."""
    is_idempotent: bool = False
    """Whether an interrupted call may be retried: two calls have the effect of one."""
    is_drawing: bool = False
    """Whether the frontend renders its arguments, so that it counts as a frontend action."""
    mcp_server: str = ""
    """The URL of the MCP server that provides it; empty for any other action."""
    origin: str = ""
    """The name of the server that provides it, for messages; empty for this server and pages."""
    agent: SupportsRun | None = None

    @property
    def in_browser(self) -> bool:
        """Whether the browser executes it."""
        return self.run is None and self.agent is None


class ActionSource:
    """A source of actions: a remote endpoint, an MCP server, or a registry of your own."""

    async def actions(self, run: "RunInput") -> Sequence[Action]:
        """Return the actions for this run; if it fails, the run continues without them."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Release the resources of the source at shutdown."""
