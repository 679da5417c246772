"""The interfaces everything hangs on. Read this file first."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol
from uuid import UUID, uuid5

from copilot_runtime.events import Event
from copilot_runtime.messages import Message

Events = AsyncGenerator[Event, None]
"""What agents and adapters make. Whoever may leave one early closes it: `aclosing(events)`."""

Cursor = str
"""A place in a run's log. Opaque: only the bus that made it can read it."""

DEFAULT_AGENT = "default"
"""What clients call the agent that answers when none is named."""

START: Cursor = "0"
"""The place before the first event; every bus takes it."""


@dataclass(frozen=True, slots=True)
class ContextItem:
    """Something the application wants the model to know (`useCopilotReadable`)."""

    description: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What the client asks of the model. `None` means not asked; zero is a wish like any other."""

    model: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    stop: Sequence[str] | None = None
    tool_choice: str | None = None
    """`auto`, `none`, `required`, or `function` together with `tool_choice_name`."""
    tool_choice_name: str | None = None
    parallel_tool_calls: bool | None = None
    """`False` asks for one call at a time."""
    top_p: float | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    reasoning_effort: Literal["minimal", "low", "medium", "high"] | None = None
    response_schema: Mapping[str, Any] | None = None
    """The JSON schema of an object: the answer is its text, and nothing else."""
    response_name: str | None = None
    """What the model is told that the object is called."""


@dataclass(frozen=True, slots=True)
class AgentInput:
    """The state and configuration the client holds for one agent."""

    state: Any = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resume:
    """A person's answer to an `Interrupt`.

    `response` is the answer as text; `payload` is what an AG-UI client sent. CopilotKit v1 names
    the interrupt by its `value`, AG-UI by its `interrupt_id`.
    """

    value: str
    response: str | None = None
    interrupt_id: str | None = None
    status: Literal["resolved", "cancelled"] = "resolved"
    payload: Any = None


@dataclass(frozen=True, slots=True)
class GuardrailRules:
    """Topics the client allows and denies for its own requests."""

    allow: Sequence[str] = ()
    deny: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionContext:
    """What a running action may know of the request it serves."""

    thread_id: str
    run_id: str
    call_id: str
    properties: Mapping[str, Any]
    headers: Mapping[str, str]
    user: str | None = None


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
    agent: "Agent | None" = None

    @property
    def in_browser(self) -> bool:
        """Whether the browser runs it."""
        return self.run is None and self.agent is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks: `user` is what the `authenticate` hook returned.

    `headers` are those that may be forwarded, by names in lower case. In a run, `properties` and
    `url` are the run's: the client's word.
    """

    user: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInput:
    """One request, as every transport decodes it.

    `run_id` is the client's word and may come twice: the log of the run is called `key`.
    `agent` is None for a plain chat. `follow_up` says who asks the model again after a server
    action: CopilotKit v1 clients send the results back themselves (`client`), everybody else
    expects the run to go on (`server`). A `detached` run outlives its reader. `properties` are
    the client's word, on top of the operator's; `headers` are those that may be forwarded, by
    names in lower case. `agents` holds what the client remembers of each agent. `node` is where
    in an agent it is, `url` the page it is on. A `kept` run becomes a part of its thread, which
    belongs to `user`.
    """

    thread_id: str
    run_id: str
    messages: Sequence[Message]
    agent: str | None = None
    actions: Sequence[Action] = ()
    """The browser's actions; the runtime adds those of the server."""
    context: Sequence[ContextItem] = ()
    parameters: Parameters = Parameters()
    properties: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    agents: Mapping[str, AgentInput] = field(default_factory=dict)
    resume: Sequence[Resume] = ()
    rules: GuardrailRules | None = None
    extensions: Mapping[str, Any] = field(default_factory=dict)
    node: str | None = None
    url: str | None = None
    request_type: str = "Chat"
    operation: str = "generateCopilotResponse"
    follow_up: Literal["client", "server"] = "server"
    detached: bool = False
    user: str | None = None
    kept: bool = False
    log: str | None = None

    @property
    def key(self) -> str:
        """The name of the run's log, unique in this server."""
        return self.log or self.run_id

    @property
    def caller(self) -> Caller:
        """Who asks."""
        return Caller(
            user=self.user, headers=self.headers, properties=self.properties, url=self.url
        )


def private_thread_id(user: str | None, thread_id: str) -> str:
    """Return what to call a thread where users are not known, such as in a remote agent.

    Two users may have a thread of the same id, and neither may see what is kept of the other's.
    Where nobody signs in, it is the id itself.
    """
    return thread_id if user is None else str(uuid5(_THREADS, f"{user}\0{thread_id}"))


_THREADS = UUID("5d0f3b0e-3c53-4b1c-9a3e-7f2f0f1d6a10")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """What an adapter sends to its provider.

    `agent`, `user` and `extensions` are those of the `RunInput`.
    """

    messages: Sequence[Message]
    actions: Sequence[Action] = ()
    parameters: Parameters = Parameters()
    thread_id: str = ""
    run_id: str = ""
    agent: str | None = None
    user: str | None = None
    extensions: Mapping[str, Any] = field(default_factory=dict)


class Adapter(Protocol):
    """One LLM provider.

    An adapter may also have `check(run)`, which raises before a run that cannot go well, and
    `async aclose()`, which is awaited when the server ends.
    """

    def stream(self, request: ChatRequest) -> Events: ...


class Agent(Protocol):
    """One way to answer.

    An agent may also have a `description`, `check(run)` and `async aclose()` as adapters have,
    and `async load_state(thread_id, caller)`, which returns state and messages of a thread, or
    None.
    """

    def run(self, run: RunInput) -> Events: ...


class ActionSource(Protocol):
    """A place actions come from: server code, a remote endpoint, an MCP server."""

    async def actions(self, run: RunInput) -> Sequence[Action]: ...


AgentsOf = Callable[[Caller], Mapping[str, Agent] | Awaitable[Mapping[str, Agent]]]

Agents = Mapping[str, Agent] | AgentsOf
"""Agents by name, or a function that returns those of a caller, asked at every request."""

Stage = Callable[[Events, RunInput], Events]
"""Wraps the events of a run: watches, changes or refuses them."""


class Batch(NamedTuple):
    """Events that were ready together, and the cursor after the last of them."""

    cursor: Cursor
    events: Sequence[Event]


class Bus(Protocol):
    """Keeps each run as an append-only log that any number of readers follow from any point."""

    async def append(self, run_id: str, event: Event) -> None:
        """Add an event; one of `events.LAST` ends the log. Raises `LimitExceeded`."""
        ...

    def read(self, run_id: str, after: Cursor = START) -> AsyncGenerator[Batch, None]:
        """Follow a log to its last event. Raises `NotFound`, or `Misuse` for a wrong cursor."""
        ...

    async def drop(self, run_id: str) -> None:
        """Forget a log, if there is one."""
        ...


class Journal(Bus, Protocol):
    """A bus that also keeps the logs of some runs for good."""

    async def begin(self, run: RunInput) -> Sequence[Message]:
        """Keep the log of this run from now on; return its messages that are new in its thread.

        Raises `ThreadBusy` when another server answers in that thread.
        """
        ...


class Runs(Protocol):
    """What a transport may ask of the runtime."""

    async def start(self, run: RunInput) -> None:
        """Begin a run; return once its log exists. Raises what forbids it to begin."""
        ...

    def stop(self, key: str) -> bool:
        """End a run, without waiting. Returns whether it still went on."""
        ...

    def follow(self, key: str, after: Cursor = START) -> AsyncGenerator[Batch, None]:
        """Read a run's log, as `Bus.read` does."""
        ...
