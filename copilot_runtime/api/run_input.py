"""The input of a run, as every transport decodes it, and the current run of a task."""

import hmac
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol
from uuid import UUID, uuid5

from copilot_runtime.api.action import Action, ActionContext
from copilot_runtime.api.agent import DEFAULT_AGENT
from copilot_runtime.api.budget import Budget
from copilot_runtime.api.events import Event
from copilot_runtime.api.identity import Caller, Identity, get_current_identity
from copilot_runtime.api.messages import Message
from copilot_runtime.base.dataclass_copy import make_builder
from copilot_runtime.telemetry.context import SpanContext
from copilot_runtime.telemetry.span import NO_SPAN, Span


class Checkpoint(NamedTuple):
    """The state that an agent stored of an interrupted run."""

    version: int
    """Changes with each write."""
    data: bytes


class CheckpointKey(NamedTuple):
    """The key of a checkpoint: owner, thread and agent."""

    owner: str
    thread_id: str
    name: str


class Checkpoints(Protocol):
    """Stores the checkpoints of interrupted runs, one per key.

    All processes that share the storage see them. A checkpoint is deleted with its thread; without
    a thread, after a week. Every method raises `StoreFailed`.
    """

    async def save_checkpoint(self, key: CheckpointKey, data: bytes) -> bool:
        """Create or replace a checkpoint. Returns False if there is no storage."""
        ...

    async def find_checkpoint(self, key: CheckpointKey) -> Checkpoint | None:
        """Return the checkpoint, or None."""
        ...

    async def delete_checkpoint(self, key: CheckpointKey, version: int | None = None) -> bool:
        """Delete a checkpoint if it still has that version. Returns whether this call deleted it.

        If several processes delete one version, exactly one gets True.
        """
        ...


@dataclass(frozen=True, slots=True)
class ThreadIds:
    """Derives thread ids for systems that do not know users, such as remote agents.

    Without `has_users` (no authentication), ids are unchanged. The `secret` prevents others who
    know user and thread from computing the id; without it, ids are derived by a plain hash.
    """

    has_users: bool = False
    secret: bytes = field(default=b"", repr=False)
    task: str = ""
    """The task of a plan; its agent gets its own thread, which every server derives alike."""

    def derive(self, user: str | None, thread_id: str) -> str:
        """Return a UUID for user and thread; for anonymous callers perhaps `thread_id` itself."""
        if self.task:
            return str(uuid5(_THREADS, f"{self.task}\0{thread_id}"))
        if user is None and not self._derives_for_anonymous(thread_id):
            return thread_id
        name = f"{user or ''}\0{thread_id}"
        if not self.secret:
            return str(uuid5(_THREADS, name))
        digest = hmac.digest(self.secret, name.encode(errors="surrogatepass"), "sha256")
        return str(UUID(bytes=digest[:16], version=5))

    def _derives_for_anonymous(self, thread_id: str) -> bool:
        """Return whether an anonymous thread needs a derived id, to not collide with a user's."""
        return self.has_users and (bool(self.secret) or _is_derived(thread_id))


_THREADS = UUID("5d0f3b0e-3c53-4b1c-9a3e-7f2f0f1d6a10")


def _is_derived(thread_id: str) -> bool:
    """Return whether an id may have been derived by `ThreadIds`, in any UUID notation."""
    try:
        return UUID(thread_id).version == 5
    except ValueError:
        return False


PAGE_INSTRUCTIONS = "Instructions of the page"
"""The description of a context item made from a frontend's system message."""


@dataclass(frozen=True, slots=True)
class ContextItem:
    """Context that the frontend gives to the model (`useCopilotReadable`)."""

    description: str
    value: str


@dataclass(frozen=True, kw_only=True)  # no slots, for `copy_with`
class Parameters:
    """Model parameters of the request. `None` means not set; zero is a value."""

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
    """The JSON schema of the answer, for structured output."""
    response_name: str | None = None
    """The name of that schema, for the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """An operator's changes of the agent that answers, for one run. `None` changes nothing."""

    instructions: str | None = field(default=None, repr=False)
    parameters: Parameters = Parameters()
    tools: Collection[str] | None = None
    """The names of the server's actions that the agent may still call."""

    @property
    def names(self) -> Sequence[str]:
        """The names of what is changed."""
        values = {"instructions": self.instructions, **vars(self.parameters), "tools": self.tools}
        return [name for name, value in values.items() if value is not None]


@dataclass(frozen=True, slots=True)
class AgentInput:
    """The state and configuration the client holds for one agent."""

    state: Any = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resume:
    """A person's answer to an `Interrupt`: the `payload` of any client, and its text.

    The payload of a v1 client is its text, decoded if it is JSON, as on Node. CopilotKit v1 names
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


@dataclass(frozen=True, kw_only=True)  # no slots, for `copy_with`
class RunInput:
    """The input of a run. Use `dataclasses.replace` for a changed copy."""

    thread_id: str
    """The id of the conversation, as the client sent it."""
    run_id: str
    """The id of the run, as the client sent it. It may not be unique: see `log_id`."""
    messages: Sequence[Message]
    """The conversation up to now, the oldest message first."""
    agent: str | None = None
    """The name of the agent that answers; None for a plain chat with the model."""
    query: str = ""
    """The search query of retrievers; if empty, they take the last question of `messages`."""
    actions: Sequence[Action] = ()
    """The browser's actions. The runtime adds those of the server before an agent gets the run."""
    context: Sequence[ContextItem] = ()
    """Context of the frontend for the model, beside the messages."""
    parameters: Parameters = Parameters()
    """Settings of the model for this run only."""
    overrides: Overrides | None = field(default=None, compare=False)
    """Changes of the agent by an operator; set by transports that have checked the permission."""
    properties: Mapping[str, Any] = field(default_factory=dict)
    """The client's properties, on top of the operator's."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of the request that may be forwarded, by names in lower case."""
    agents: Mapping[str, AgentInput] = field(default_factory=dict)
    """The state and configuration that the client has for each agent, by name."""
    page_instructions: Literal["keep", "context", "drop"] = "keep"
    """How system messages of the frontend were treated: see the setting of that name."""
    resume: Sequence[Resume] = ()
    """Answers to the interrupts of the run before this one."""
    rules: GuardrailRules | None = None
    """Topics that the client allows and denies; None if it sent none."""
    extensions: Mapping[str, Any] = field(default_factory=dict)
    """Provider-specific data of the client, such as the ids of OpenAI Assistants."""
    node: str | None = None
    """The LangGraph node at which the agent is, according to the client."""
    url: str | None = None
    """The address of the page that sent the request."""
    request_type: str = "Chat"
    """CopilotKit's request type: `Chat`, `Task`, `Suggestion` …"""
    operation: str = "generateCopilotResponse"
    """The name of the operation, for the `error` hook."""
    follow_up: Literal["client", "server"] = "server"
    """Who continues after a server action: CopilotKit v1 clients send the results back in a new
    request (`client`); otherwise the run itself continues (`server`)."""
    detached: bool = False
    """Whether the run continues after its reader disconnects."""
    user: str | None = None
    """The owner of the thread: the authenticated user, with the tenant if there is one."""
    identity: Identity = field(default_factory=get_current_identity, compare=False)
    """The authenticated identity of the caller, with its permissions."""
    persist: bool = False
    """Whether the run becomes a part of its thread in the store."""
    log_id: str = ""
    """The id of the run's log, unique in this server; defaults to `run_id`."""
    click: str = ""
    """The click in an A2UI surface that the run answers, for the first event of its log; set at
    launch."""
    thread_ids: ThreadIds = ThreadIds()
    """Derives thread ids for remote agents, which do not know users; set at launch."""
    checkpoints: Checkpoints | None = field(default=None, repr=False, compare=False)
    """The checkpoint store of agents; set at launch."""
    parent: SpanContext | None = field(default=None, repr=False)
    """The parent span of the client, from its header `traceparent`."""
    span: Span = field(default=NO_SPAN, repr=False, compare=False)
    """The span of the agent that answers; set at launch."""
    budget: Budget | None = field(default=None, repr=False, compare=False)
    """The limits of the run with all its parts; None without limits. Set at launch."""

    def __post_init__(self) -> None:
        if not self.log_id:
            object.__setattr__(self, "log_id", self.run_id)

    @property
    def private_thread_id(self) -> str:
        """The thread id for remote agents, which do not know users."""
        return self.thread_ids.derive(self.user, self.thread_id)

    @property
    def is_v1(self) -> bool:
        """Whether the client is CopilotKit v1 (GraphQL)."""
        return self.follow_up == "client"

    @property
    def agent_name(self) -> str:
        """The name of the agent that answers."""
        return self.agent or DEFAULT_AGENT

    @property
    def agent_input(self) -> AgentInput:
        """The client's state and configuration for the agent that answers."""
        return self.agents.get(self.agent_name, AgentInput())

    @property
    def caller(self) -> Caller:
        """The caller of the request."""
        return Caller(
            user=self.user,
            headers=self.headers,
            properties=self.properties,
            url=self.url,
            parent=self.parent,
            identity=self.identity,
        )

    def action_context(self, call_id: str) -> ActionContext:
        """Return the context of a tool call in this run."""
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


new_run_input = make_builder(RunInput)
"""Builds the input of a run in a fraction of the time, for transports."""


WaitForStorage = Callable[[], Coroutine[Any, Any, None]]
"""Waits until other servers can see the pending events. Raises the error of the store."""


@dataclass(slots=True)
class RunSlot:
    """A reference to the current run, cleared at its end, so that contexts do not leak it.

    A request without a run has a slot, too, if what its caller uses is limited.
    """

    run: RunInput | None
    budget: Budget | None = None
    """The limits of all that happens now; after the run and without one, those of the caller."""
    is_stopped: bool = False
    """Whether the run was stopped; it may also end early because the server shuts down."""
    traces_tools: bool = False
    """Whether the agent creates tool spans itself, so that none are derived from its events."""
    closing_events: Sequence[Event] = ()
    """Final states and activities of a stopped agent, to be sent before the end of the run."""
    wait_for_storage: WaitForStorage | None = None
    """Called before each side effect: waits until the events so far are durable, as
    `Bus.wait_for_storage` does, or until this server is confirmed to execute the plan."""


CURRENT_RUN: ContextVar[RunSlot] = ContextVar("CURRENT_RUN")
"""The run of the current task, inherited by its child tasks."""

CURRENT_PATH: ContextVar[str] = ContextVar("CURRENT_PATH")
"""The path of the runtime's URL as the client sees it, for links; unset outside of requests."""


def find_budget() -> Budget | None:
    """Return the budget of the current run, or else that of the caller; None without limits."""
    slot = CURRENT_RUN.get(None)
    return None if slot is None else slot.budget


async def check_budget() -> None:
    """Raise the error of a limit that the current run or caller has reached."""
    if (budget := find_budget()) is not None:
        await budget.check()


@asynccontextmanager
async def reserve_storage(size: int) -> AsyncGenerator[None, None]:
    """Store `size` bytes within a block. Raises an error if the caller may store no more."""
    budget = find_budget()
    reserve = None if budget is None else budget.reserve_storage
    release = None if reserve is None else await reserve(size)
    try:
        yield
    finally:
        if release is not None:
            release()


async def wait_for_storage() -> None:
    """Wait until the current run may perform a side effect.

    Raises the error of the store: other servers would not know of the call, and might repeat it.
    """
    slot = CURRENT_RUN.get(None)
    if slot is not None and slot.wait_for_storage is not None:
        await slot.wait_for_storage()
