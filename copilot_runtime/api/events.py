"""The events that adapters, agents and transports exchange.

A run is an ordered log of these events. Each is a frozen value with a literal
`type`, so the union can be matched exhaustively and serialised. A `Start` event
names the author; later events refer to it by id, so two messages or two calls may
interleave. `AgentState` is a snapshot; transports compute the deltas.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from copilot_runtime.api.messages import Message, Part, Role
from copilot_runtime.base.errors import ErrorReport


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """The first event of every log; written by the runtime only.

    `messages` are the messages that the request added to its thread, and `server_actions` the names
    of the actions that only the server executed, both only if the thread is stored. `user` is the
    user who sent the request. `click` is the click in an A2UI surface that the run answers.
    """

    run_id: str
    thread_id: str
    messages: Sequence[Message] = ()
    user: str | None = None
    server_actions: tuple[str, ...] = ()
    click: str = ""
    type: Literal["run_started"] = "run_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """The last event of a successful run.

    Only the runtime writes it. An agent that has a `result` may yield `RunFinished(result=...)` as
    its last event; the runtime copies the result.
    """

    result: Any = None
    type: Literal["run_finished"] = "run_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailed:
    """The last event of a run that failed or was stopped; `error` is safe to show to clients."""

    error: ErrorReport
    type: Literal["run_failed"] = "run_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMessageStart:
    """A text message begins. `parent_id` is its parent message, `agent` its author."""

    message_id: str
    role: Role = "assistant"
    parent_id: str | None = None
    agent: str | None = None
    type: Literal["text_message_start"] = "text_message_start"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMessageContent:
    """A chunk of text, never empty."""

    message_id: str
    content: str
    type: Literal["text_message_content"] = "text_message_content"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMessageEnd:
    """A text message is complete."""

    message_id: str
    type: Literal["text_message_end"] = "text_message_end"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningStart:
    """Reasoning of the model begins, before its answer or its tool calls."""

    message_id: str
    type: Literal["reasoning_start"] = "reasoning_start"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningContent:
    """A chunk of reasoning, never empty."""

    message_id: str
    content: str
    type: Literal["reasoning_content"] = "reasoning_content"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningSignature:
    """Fields that a service added to reasoning, a text or a tool call, to send back to it later.

    Signatures are among them. `entity_id` is the id of that reasoning or text or, with
    `of="call"`, of that call. Of several values for one id, the last one counts.
    """

    entity_id: str
    value: str
    of: Literal["message", "call"] = "message"
    type: Literal["reasoning_signature"] = "reasoning_signature"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningEnd:
    """A block of reasoning is complete."""

    message_id: str
    type: Literal["reasoning_end"] = "reasoning_end"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionExecutionStart:
    """A tool call begins. `parent_id` is the message it belongs to."""

    call_id: str
    name: str
    parent_id: str | None = None
    type: Literal["action_execution_start"] = "action_execution_start"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionExecutionArgs:
    """A chunk of the call's arguments, as JSON text."""

    call_id: str
    delta: str
    type: Literal["action_execution_args"] = "action_execution_args"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionExecutionEnd:
    """The arguments of a tool call are complete.

    For a call that was cut off, and will not run, it comes after the result.
    """

    call_id: str
    type: Literal["action_execution_end"] = "action_execution_end"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionExecutionResult:
    """The result of an action: text unchanged, everything else as JSON text.

    `parts` has the content parts of an AG-UI result; `result` is then their text, or their JSON if
    not all are text. Clients get a message with the id `message_id`, by default `result-` followed
    by the id of the call.
    """

    call_id: str
    name: str
    result: str
    message_id: str | None = None
    parts: Sequence[Part] = ()
    type: Literal["action_execution_result"] = "action_execution_result"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState:
    """The whole state of an agent at one moment, nearly always an object.

    The other fields are optional, for `useCoAgent` of v1 clients: `running` tells whether the agent
    is still working, `active` whether it is answering, `node` is its current graph node.
    """

    agent: str
    state: Any
    node: str = ""
    thread_id: str = ""
    run_id: str = ""
    active: bool = True
    running: bool = True
    type: Literal["agent_state"] = "agent_state"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted:
    """An agent begins a step of its work, such as a node of a graph."""

    name: str
    type: Literal["step_started"] = "step_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished:
    """The step of that name ends."""

    name: str
    type: Literal["step_finished"] = "step_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt:
    """An agent needs the answer of a person before it can continue.

    `reason` is a word for programs, `message` a sentence for people, `value` any other data of the
    question. `response_schema` is the JSON schema of the answer, `expires_at` an ISO 8601 time,
    `call_id` the tool call to approve. `messages` are shown with the question in CopilotKit 1.10.
    """

    interrupt_id: str
    value: Any = None
    messages: Sequence[Message] = ()
    reason: str = "input"
    message: str | None = None
    call_id: str | None = None
    response_schema: Mapping[str, Any] | None = None
    expires_at: str | None = None
    metadata: Any = None
    type: Literal["interrupt"] = "interrupt"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesSnapshot:
    """The whole conversation of the agent at this moment."""

    messages: Sequence[Message]
    type: Literal["messages_snapshot"] = "messages_snapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """The whole content of an activity message, which clients draw according to `activity_type`.

    With `replace=False`, a client that has a message with this id ignores the event.
    """

    message_id: str
    activity_type: str
    content: Any
    replace: bool = True
    type: Literal["activity"] = "activity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subagent:
    """Another agent begins or ends its part of the work."""

    subagent_id: str
    status: Literal["started", "finished", "failed"]
    name: str | None = None
    result: Any = None
    message: str | None = None
    type: Literal["subagent"] = "subagent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The token counts of one model call, as the provider counted them, and its stop reason.

    A count that the provider does not give is None; zero means that it counted none.
    `input_tokens` includes tokens read from a cache (`cached_tokens`) and written to one
    (`cache_write_tokens`); `output_tokens` includes `reasoning_tokens`. `stop_reason` is
    `stop`, `length`, `tool_calls`, `content_filter`, `refusal`, `pause`, or the provider's own word
    for anything else. `provider` is the adapter's name in `ADAPTERS`. `dollars` is the cost of the
    call in US dollars, if the adapter names one: else it is looked up by the model's name.
    """

    model: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    provider: str = ""
    stop_reason: str | None = None
    dollars: float | None = None
    type: Literal["usage"] = "usage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Custom:
    """An event with a name and a value of your own; clients of CopilotKit 1.10 do not get it."""

    name: str
    value: Any
    type: Literal["custom"] = "custom"


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """An event of another protocol, unchanged. `source` names where it came from."""

    event: Any
    source: str | None = None
    type: Literal["raw"] = "raw"


Event = (
    RunStarted
    | RunFinished
    | RunFailed
    | TextMessageStart
    | TextMessageContent
    | TextMessageEnd
    | ReasoningStart
    | ReasoningContent
    | ReasoningSignature
    | ReasoningEnd
    | ActionExecutionStart
    | ActionExecutionArgs
    | ActionExecutionEnd
    | ActionExecutionResult
    | AgentState
    | StepStarted
    | StepFinished
    | Interrupt
    | MessagesSnapshot
    | Activity
    | Subagent
    | Usage
    | Custom
    | Raw
)

Events = AsyncGenerator[Event, None]
"""The event stream of agents and adapters. Consume it under `contextlib.aclosing`."""

LAST = (RunFinished, RunFailed)
"""The events that end a log."""

BRIEF = frozenset(
    {
        *(RunStarted, RunFinished, RunFailed, TextMessageStart, TextMessageEnd, ReasoningStart),
        *(ReasoningEnd, ActionExecutionStart, ActionExecutionEnd, StepStarted, StepFinished),
        *(Subagent, Usage),
    }
)
"""Events with a small, nearly constant size: ids, names, or content that is counted elsewhere."""

_QUESTIONS = frozenset({"on_interrupt", "CopilotKitLangGraphInterruptEvent"})
"""Custom events by which agents ask a person that predate AG-UI interrupts."""


def is_question(event: Event) -> bool:
    """Return whether an event is a question to a person."""
    return isinstance(event, Interrupt) or (isinstance(event, Custom) and event.name in _QUESTIONS)
