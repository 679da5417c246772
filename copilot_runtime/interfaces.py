"""The interfaces everything hangs on. Read this file first."""

import hmac
from abc import ABC, abstractmethod
from asyncio import Future, get_running_loop
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from functools import cache, partial
from itertools import repeat
from operator import attrgetter, call
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar, cast
from uuid import UUID, uuid5

from copilot_runtime.events import Activity, Event
from copilot_runtime.identity import NOBODY, Identity, get_current_identity
from copilot_runtime.messages import Message
from copilot_runtime.telemetry.context import SpanContext
from copilot_runtime.telemetry.span import NO_SPAN, Span

if TYPE_CHECKING:
    from decimal import Decimal

    import numpy as np
    from numpy.typing import NDArray

Events = AsyncGenerator[Event, None]
"""What agents and adapters make. Whoever may leave one early closes it: `aclosing(events)`."""

Cursor = str
"""A place in a run's log. Opaque: only the bus that made it can read it."""

DEFAULT_AGENT = "default"
"""What clients call the agent that answers when none is named."""

START: Cursor = "0"
"""The place before the first event; every bus takes it."""

HistoryOwner = Literal["client", "server"]
"""Whose conversation an agent gets: what the client sends, or what is stored."""


@dataclass(frozen=True, slots=True)
class ContextItem:
    """What the application shows to the model (`useCopilotReadable`)."""

    description: str
    value: str


PAGE_INSTRUCTIONS = "Instructions of the page"
"""The description of a context item that was a system message of a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Settings of the model that the client asks for. `None` means not set; zero is a value."""

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
    """The name of that object, for the model."""


@dataclass(frozen=True, slots=True)
class AgentInput:
    """The state and configuration the client holds for one agent."""

    state: Any = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resume:
    """A person's answer to an `Interrupt`: as text, and the `payload` of an AG-UI client.

    CopilotKit v1 names the interrupt by its `value`, AG-UI by its `interrupt_id`.
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
    agent: "SupportsRun | None" = None

    @property
    def in_browser(self) -> bool:
        """Whether the browser runs it."""
        return self.run is None and self.agent is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks: `user` is to whom things belong, `identity` what else is known of them.

    The rest is as in `RunInput`.
    """

    user: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)
    url: str | None = None
    parent: SpanContext | None = field(default=None, repr=False, compare=False)
    identity: Identity = field(default=NOBODY, compare=False)

    def merge_properties(self, properties: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Return the operator's properties with those of a request on top."""
        return {**self.properties, **(properties or {})}


@dataclass(frozen=True, slots=True)
class ThreadIds:
    """The ids of threads where users are not known, such as in a remote agent.

    `has_users` is whether people can sign in; else an id is kept. The `secret` keeps people who
    know a user and a thread from computing the id. Without it, ids are those that agents got
    before there were secrets.
    """

    has_users: bool = False
    secret: bytes = field(default=b"", repr=False)
    task: str = ""
    """The task of a plan, whose agent has a thread of its own; every server derives the same."""

    def derive(self, user: str | None, thread_id: str) -> str:
        """Return a UUID that differs for two users, and for nobody, with the same `thread_id`."""
        if self.task:
            return str(uuid5(_THREADS, f"{self.task}\0{thread_id}"))
        if user is None and not self._derives_for_nobody(thread_id):
            return thread_id
        name = f"{user or ''}\0{thread_id}"
        if not self.secret:
            return str(uuid5(_THREADS, name))
        digest = hmac.digest(self.secret, name.encode(errors="surrogatepass"), "sha256")
        return str(UUID(bytes=digest[:16], version=5))

    def _derives_for_nobody(self, thread_id: str) -> bool:
        """Return whether nobody's thread has an id of its own: it must be none of a user."""
        return self.has_users and (bool(self.secret) or _is_derived(thread_id))


_THREADS = UUID("5d0f3b0e-3c53-4b1c-9a3e-7f2f0f1d6a10")


def _is_derived(thread_id: str) -> bool:
    """Return whether an id might be one that `ThreadIds` derived, however it is spelled."""
    try:
        return UUID(thread_id).version == 5
    except ValueError:
        return False


class Checkpoint(NamedTuple):
    """What an agent stored of a run that waits for a person."""

    version: int
    """Another one for each time that it was stored."""
    data: bytes


class CheckpointKey(NamedTuple):
    """Whose run waits, in which thread, and which agent's it is."""

    owner: str
    thread_id: str
    name: str


class Checkpoints(Protocol):
    """Stores what agents need to go on with runs that wait for people: one of each key.

    All processes that share the storage find it. It is deleted with its thread; without a thread,
    a week later. Every method raises `StoreFailed`.
    """

    async def save_checkpoint(self, key: CheckpointKey, data: bytes) -> bool:
        """Store data in place of what was there. Returns False if there is no storage for it."""
        ...

    async def find_checkpoint(self, key: CheckpointKey) -> Checkpoint | None:
        """Return what is stored, or None."""
        ...

    async def delete_checkpoint(self, key: CheckpointKey, version: int | None = None) -> bool:
        """Delete what is stored, if it is of that version still. Returns whether this call did.

        Of several processes that delete one version, one gets True.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInput:
    """One request, as every transport decodes it. `dataclasses.replace` makes a changed copy."""

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
    page_instructions: Literal["keep", "context", "drop"] = "keep"
    """What became of the system messages of the page: see the setting of that name."""
    resume: Sequence[Resume] = ()
    """Answers to the interrupts of the run before this one."""
    rules: GuardrailRules | None = None
    """Topics that the client allows and denies; None if it sent none."""
    extensions: Mapping[str, Any] = field(default_factory=dict)
    """What the client sends for one provider only, such as the ids of OpenAI Assistants."""
    node: str | None = None
    """Where in an agent the client is: a LangGraph node."""
    url: str | None = None
    """The address of the page that sent the request."""
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
    """The owner of the thread: what the `authenticate` hook returned, with the tenant if any."""
    identity: Identity = field(default_factory=get_current_identity, compare=False)
    """Who asks, by which credential, and what they may do."""
    persist: bool = False
    """Whether the run becomes a part of its thread in the store."""
    log_id: str = ""
    """The id of the run's log, unique in this server; `run_id` unless given."""
    click: str = ""
    """The click in a surface that the run answers, for the first event of its log; set when the
    run is launched."""
    thread_ids: ThreadIds = ThreadIds()
    """How threads are called where users are not known; set when the run is launched."""
    checkpoints: Checkpoints | None = field(default=None, repr=False, compare=False)
    """Where agents store what they need after a person's answer; set when the run is launched."""
    parent: SpanContext | None = field(default=None, repr=False)
    """The span of another process under which the client asks: its header `traceparent`."""
    span: Span = field(default=NO_SPAN, repr=False, compare=False)
    """The span of the agent that answers; set when the run is launched."""

    def __post_init__(self) -> None:
        if not self.log_id:
            object.__setattr__(self, "log_id", self.run_id)

    @property
    def private_thread_id(self) -> str:
        """The id of the thread where users are not known, such as in a remote agent."""
        return self.thread_ids.derive(self.user, self.thread_id)

    @property
    def is_v1(self) -> bool:
        """Whether a CopilotKit v1 (GraphQL) client asks."""
        return self.follow_up == "client"

    @property
    def agent_name(self) -> str:
        """What clients call the agent that answers."""
        return self.agent or DEFAULT_AGENT

    @property
    def agent_input(self) -> AgentInput:
        """The state and configuration that the client has for the agent that answers."""
        return self.agents.get(self.agent_name, AgentInput())

    @property
    def caller(self) -> Caller:
        """Who asks."""
        return Caller(
            user=self.user,
            headers=self.headers,
            properties=self.properties,
            url=self.url,
            parent=self.parent,
            identity=self.identity,
        )

    def action_context(self, call_id: str) -> ActionContext:
        """Return what the action of a call may use of this request."""
        return ActionContext(
            thread_id=self.thread_id,
            run_id=self.run_id,
            call_id=call_id,
            properties=self.properties,
            headers=self.headers,
            user=self.user,
            agent=self.agent_name,
            span=self.span,
        )


@dataclass(slots=True)
class RunSlot:
    """Has a run while it goes on: contexts of tasks and timers outlive it, and must not hold it."""

    run: RunInput | None
    is_stopped: bool = False
    """Whether somebody has stopped the run; it also ends early when the server does."""
    traces_tools: bool = False
    """Whether the agent makes spans of its tools itself, so that its events make none."""
    closing_events: Sequence[Event] = ()
    """What an agent that somebody stopped still has to show: states and activities."""


CURRENT_RUN: ContextVar[RunSlot] = ContextVar("CURRENT_RUN")
"""The run in whose task, or in a task of that, code is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A text that was found for a question, and where a reader can open its source."""

    id: str
    """The URI of the resource that has it."""
    text: str
    title: str = ""
    url: str = ""
    """Where a reader can open it, as far as that is possible."""
    score: float | None = None
    """How well it answers: higher is better."""


class Retriever(Protocol):
    """Finds what a model should read before it answers."""

    async def retrieve(self, run: RunInput) -> Sequence[Passage]:
        """Return passages for the last question of a run, the best first; none if none fits.

        Each is one that the caller of the run may read. What is raised is logged, and the run goes
        on without passages.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """What an adapter sends to its provider.

    `agent`, `user` and `extensions` are those of the `RunInput`. `message_id` is for the answer;
    an empty one is the provider's, which some providers use again in the next answer.
    """

    messages: Sequence[Message]
    instructions: str = ""
    """The operator's part of the first message: no error or log line may repeat it."""
    actions: Sequence[Action] = ()
    parameters: Parameters = Parameters()
    thread_id: str = ""
    run_id: str = ""
    agent: str | None = None
    user: str | None = None
    extensions: Mapping[str, Any] = field(default_factory=dict)
    message_id: str = ""
    passages: Sequence[Passage] = ()
    """What was retrieved for the question; the first message has it as well, as text."""
    span: Span = field(default=NO_SPAN, repr=False, compare=False)
    """The span of the request: an adapter may add to it what it knows of request and response."""


Copied = TypeVar("Copied", ActionContext, RunInput, ChatRequest, Identity)


def copy_with(value: Copied, **changes: Any) -> Copied:
    """Return a copy of which some fields are others, as `replace` does, which takes longer.

    A run is copied several times. Nothing is checked, and `__post_init__` is not called.
    """
    copy = object.__new__(type(value))
    read_all, writers = _find_slots(type(value))
    # no code of Python runs
    deque(map(_call, writers.values(), repeat(copy), read_all(value)), maxlen=0)
    for name, changed in changes.items():
        writers[name](copy, changed)
    return copy


_Write = Callable[[object, Any], None]
_call = cast("Callable[[_Write, object, Any], None]", call)


@cache
def _find_slots(
    kind: type[ActionContext | RunInput | ChatRequest | Identity],
) -> tuple[Callable[[object], Sequence[Any]], Mapping[str, _Write]]:
    """Return what reads all fields, and what writes each of them."""
    names = [field.name for field in fields(kind)]
    return attrgetter(*names), {name: getattr(kind, name).__set__ for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a model reads of a conversation with files."""

    messages: Sequence[Message]
    """The conversation, with a line of text in the place of each file that was taken in."""
    passages: Sequence[Passage] = ()
    """What those files say that fits the question."""


class FileReader(Protocol):
    """Takes in the files that people attach to their questions."""

    def read_files(self, run: RunInput) -> AsyncGenerator[Activity | Reading, None]:
        """Yield the progress, and at last what a model reads; nothing for a run without files."""
        ...


class FileStore(Protocol):
    """Takes in the files that come to an agent, which reads them itself."""

    def has_files(self, run: RunInput) -> bool:
        """Return whether there is anything to take in."""
        ...

    def store_files(self, run: RunInput) -> AsyncGenerator[Activity | Reading, None]:
        """Yield the progress, and at last the messages as the agent gets them."""
        ...


class ModelEndpoint(NamedTuple):
    """Which model answers a request, for those who watch."""

    provider: str = ""
    """The adapter's name in `ADAPTERS`, or any other word for who runs the model."""
    model: str = ""
    url: str = ""
    """The address of the service, if there is one."""
    in_process: bool = False
    """Whether the model runs in this process."""


class SupportsStream(Protocol):
    """What is accepted for an `Adapter`."""

    def stream(self, request: ChatRequest) -> Events: ...


class Adapter:
    """One LLM provider. A class with `stream` alone need not inherit from it."""

    suggestions: Sequence[str] = ()
    """What the page at `/` offers to ask it."""

    def stream(self, request: ChatRequest) -> Events:
        """Send one request to the model and yield its answer.

        An async generator. It yields messages, calls, reasoning and `Usage`, interleaved as they
        come, but each part as a `…Start`, its pieces and its `…End`. It yields no results of
        calls, and no `RunStarted`, `RunFinished` or `RunFailed`, which the runtime adds.

        An error is raised: a `CopilotError` reaches the client with its code and message,
        anything else is logged and reported as "The run failed". `NetworkError` means that
        another attempt may succeed, and lets a `FallbackAdapter` continue.

        When the run is stopped, the task is cancelled and the generator is closed: let
        `asyncio.CancelledError` and `GeneratorExit` pass, and close the connection in `finally`.
        One object serves all runs at once: it stores nothing of a run.
        """
        raise NotImplementedError

    def check(self, run: RunInput) -> None:
        """Raise a `CopilotError` for a run that cannot succeed, before it starts."""

    async def check_key(self) -> None:
        """Raise `ConfigurationFailed` if there must be a key and is none: logged at the start."""

    def endpoint(self, request: ChatRequest) -> ModelEndpoint:
        """Return which model a request is for. Raises nothing."""
        return ModelEndpoint(model=request.parameters.model or "")

    def find_problems(self) -> Sequence[str]:
        """Return what does not work at the moment, a word each: `/health/ready` has them."""
        return ()

    async def aclose(self) -> None:
        """Release what the adapter holds, when the server ends."""


class MessageWindow(Protocol):
    """Decides what of a conversation a model reads."""

    def fit(self, request: ChatRequest) -> ChatRequest:
        """Return a request that is short enough: the same one if it is. It raises no exception but
        a `CopilotError`, which ends the run."""
        ...


class Embedder(ABC):
    """A model of embeddings."""

    max_tokens: int = 0
    """How many tokens of a text it reads, and no more than that is sent; 0 if that is unknown."""
    tokens: int = 0
    """How many tokens have been embedded so far, as the provider counts them; 0 if it does not."""
    query_tokens: int = 0
    """How many of them were those of questions."""

    @property
    @abstractmethod
    def model(self) -> str:
        """Provider, model and size in one word: vectors of two models are never compared."""

    @abstractmethod
    async def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """Return one vector of length 1 for each text, as rows.

        Raises `CopilotError` if the provider fails after its retries.
        """

    async def embed_queries(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """Return vectors of what is looked for, which some models embed otherwise than texts."""
        return await self.embed(texts)

    async def check_key(self) -> None:  # noqa: B027
        """Raise `ConfigurationFailed` if there must be a key and is none."""

    async def price(self, tokens: int) -> "Decimal | None":  # noqa: ARG002
        """Return what so many tokens cost in US dollars; None if that is not known."""
        return None

    async def aclose(self) -> None:  # noqa: B027
        """Let go of connections."""


class SupportsRun(Protocol):
    """What is accepted for an `Agent`."""

    def run(self, run: RunInput) -> Events: ...


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

    def run(self, run: RunInput) -> Events:
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

    def check(self, run: RunInput) -> None:
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
    def wrap(self, agent: Agent, run: RunInput) -> Agent:
        """Return an agent around the one given, or that one if there is nothing to do.

        Called once for each run of an AG-UI client that is a part of its thread, after its actions
        are known. What the agent around changes of the run, no store, stage or hook sees.
        """

    def mark(self, run: RunInput) -> RunInput:
        """Return a run with what its thread stores for the runs after it. Called before `wrap`."""
        return run

    async def aclose(self) -> None:  # noqa: B027
        """Release what the middleware holds, when the server ends."""


SelectNames = Callable[[Sequence[str], str | None], Awaitable[Sequence[str]]]
"""Returns those of some names that a user may use; None is somebody who has not signed in."""


class ActionSource:
    """A place actions come from: a remote endpoint, an MCP server, a registry of yours."""

    async def actions(self, run: RunInput) -> Sequence[Action]:
        """Return the actions for this run; if it fails, the run continues without them."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Release what the source holds, when the server ends."""


AgentsOf = Callable[[Caller], Mapping[str, SupportsRun] | Awaitable[Mapping[str, SupportsRun]]]

Agents = Mapping[str, SupportsRun] | AgentsOf
"""Agents by name, or a function that returns those of a caller, called for every request."""

StageFunction = Callable[[Events, RunInput], Events]
"""Any function that takes the events of a run and returns them: accepted for a `Stage`."""


class Stage:
    """Watches, changes or refuses the events of a run. A plain function will do as well."""

    def __call__(self, events: Events, run: RunInput) -> Events:
        """Return the events of a run as they shall continue.

        An async generator that reads `events` under `contextlib.aclosing`. It may drop, replace
        and add events; a `…Start` that was yielded needs its `…End`. To refuse a run, raise a
        `CopilotError`. When the run is stopped, the generator is closed, and closes `events`.
        By default, nothing changes.
        """
        del run
        return events

    def check(self, run: RunInput) -> None:
        """Raise a `CopilotError` for a run that is refused before it starts."""

    async def aclose(self) -> None:
        """Release what the stage holds, when the server ends."""


class Batch(NamedTuple):
    """Events that were ready together, and the cursor after the last of them."""

    cursor: Cursor
    events: Sequence[Event]


class LogWriter:
    """Adds the events of one run to its log."""

    def __init__(self, bus: "Bus", log_id: str, messages: Sequence[Message] = ()) -> None:
        self.append: Callable[[Event], Awaitable[None]] = partial(bus.append, log_id)
        """Add an event, as `Bus.append` does."""
        self.messages = messages
        """The messages of the request that are new in its thread."""
        self.failed: Future[Exception] = get_running_loop().create_future()
        """Done, with the reason, once the log takes nothing more but a last event."""


class Bus:
    """Stores each run as an append-only log that any number of readers follow from any point."""

    async def begin(self, run: RunInput) -> LogWriter:
        """Open the log of a run. A bus that stores threads may raise `ThreadBusy`."""
        return LogWriter(self, run.log_id)

    async def append(self, log_id: str, event: Event) -> None:
        """Add an event to a log, which is created if need be, and wake its readers.

        One writer calls this, one event at a time; one of `events.LAST` ends the log. Raises
        `LimitExceeded` for a log that is full (a last event is always taken), and `Misuse` for
        one that has ended. A cancelled call may have added the event.
        """
        raise NotImplementedError

    async def reserve(self, log_id: str, events: Sequence[Event]) -> bool:  # noqa: ARG002
        """Return whether a log has room for events that `append_all` is to add next.

        They are stored in between, so that what is stored is what is shown. A bus without limits
        returns True.
        """
        return True

    async def append_all(self, log_id: str, events: Sequence[Event]) -> bool:  # noqa: ARG002
        """Add events, all or none, and return whether it did. Raises what `append` raises.

        A bus without a faster way than `append` returns False.
        """
        return False

    def read(self, log_id: str, after: Cursor = START) -> AsyncGenerator[Batch, None]:
        """Return the batches of a log from a cursor to its last event, as they come.

        Raises at once, and not with the first batch: `NotFound` without such a log, `Misuse` for
        a wrong cursor. A reader that leaves closes the generator; the log does not change.
        """
        raise NotImplementedError

    def count_readers(self) -> int:
        """Return how many follow a log at the moment, for those who watch; 0 if it is unknown."""
        return 0

    async def drop(self, log_id: str) -> None:
        """Delete a log, if there is one. Those who read it at this moment may read on."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Release what the bus holds, when the server ends."""
