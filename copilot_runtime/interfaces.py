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
    """One request, as every transport decodes it, and what an agent gets.

    It is never changed: a hook or a stage that wants another value makes a copy with
    `dataclasses.replace`.
    """

    thread_id: str
    """The id of the conversation, as the client sent it."""
    run_id: str
    """The id of the run, as the client sent it. It may come twice: see `log_id`."""
    messages: Sequence[Message]
    """The conversation up to now, the oldest message first."""
    agent: str | None = None
    """The name of the agent that answers; None for a plain chat with the model."""
    actions: Sequence[Action] = ()
    """The browser's actions. The runtime adds those of the server before an agent gets the run."""
    context: Sequence[ContextItem] = ()
    """What the application shows to the model beside the messages."""
    parameters: Parameters = Parameters()
    """Settings of the model for this run only."""
    properties: Mapping[str, Any] = field(default_factory=dict)
    """The client's properties, on top of the operator's."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of the request that may be forwarded, by names in lower case."""
    agents: Mapping[str, AgentInput] = field(default_factory=dict)
    """The state and configuration that the client has for each agent, by name."""
    resume: Sequence[Resume] = ()
    """Answers to the interrupts of the run before this one."""
    rules: GuardrailRules | None = None
    """Topics that the client allows and denies; None if it sent none."""
    extensions: Mapping[str, Any] = field(default_factory=dict)
    """What the client sends for one provider only, such as the ids of OpenAI Assistants."""
    node: str | None = None
    """Where in an agent the client is: a LangGraph node."""
    url: str | None = None
    """The address of the page that asks."""
    request_type: str = "Chat"
    """CopilotKit's word for what the request is: `Chat`, `Task`, `Suggestion` …"""
    operation: str = "generateCopilotResponse"
    """The name of the operation, for the `error` hook."""
    follow_up: Literal["client", "server"] = "server"
    """Who asks the model again after an action of the server: CopilotKit v1 clients send the
    results back themselves (`client`), for everybody else the run goes on (`server`)."""
    detached: bool = False
    """Whether the run goes on when its reader leaves."""
    user: str | None = None
    """What the `authenticate` hook returned; the owner of the thread."""
    persist: bool = False
    """Whether the run becomes a part of its thread in the store."""
    log_id: str = ""
    """The id of the run's log, unique in this server; `run_id` unless given."""

    def __post_init__(self) -> None:
        if not self.log_id:
            object.__setattr__(self, "log_id", self.run_id)

    @property
    def is_v1(self) -> bool:
        """Whether a CopilotKit v1 (GraphQL) client asks."""
        return self.follow_up == "client"

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

    async def append(self, log_id: str, event: Event) -> None:
        """Add an event; one of `events.LAST` ends the log. Raises `LimitExceeded`."""
        ...

    def read(self, log_id: str, after: Cursor = START) -> AsyncGenerator[Batch, None]:
        """Follow a log to its last event. Raises `NotFound`, or `Misuse` for a wrong cursor."""
        ...

    async def drop(self, log_id: str) -> None:
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

    def stop(self, log_id: str) -> bool:
        """End a run, without waiting. Returns whether it still went on."""
        ...

    def follow(self, log_id: str, after: Cursor = START) -> AsyncGenerator[Batch, None]:
        """Read a run's log, as `Bus.read` does."""
        ...
