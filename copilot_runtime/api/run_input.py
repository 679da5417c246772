"""One request, as every transport decodes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from copilot_runtime.api.action import Action, ActionContext
from copilot_runtime.api.agent import DEFAULT_AGENT
from copilot_runtime.api.caller import Caller
from copilot_runtime.api.checkpoints import Checkpoints
from copilot_runtime.api.identity import Identity, get_current_identity
from copilot_runtime.api.messages import Message
from copilot_runtime.api.thread_ids import ThreadIds
from copilot_runtime.telemetry.context import SpanContext
from copilot_runtime.telemetry.span import NO_SPAN, Span

PAGE_INSTRUCTIONS = "Instructions of the page"
"""The description of a context item that was a system message of a page."""


@dataclass(frozen=True, slots=True)
class ContextItem:
    """What the application shows to the model (`useCopilotReadable`)."""

    description: str
    value: str


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
