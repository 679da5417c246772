"""The only words spoken between adapters, agents and transports.

A run is an ordered log of these events. Each is a frozen value with a literal
`type`, so the union can be matched exhaustively and sent over a wire. A `Start`
event says who speaks; what follows refers to it by id, so two messages or two
calls may interleave. Snapshots inside, deltas at the edge: `AgentState` is whole.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from copilot_runtime.errors import ErrorReport
from copilot_runtime.messages import Message, Role

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """The first event of every log; written by the runtime only.

    `messages` are those the request added to its thread, if that is kept; `user` is who asked.
    """

    run_id: str
    thread_id: str
    messages: Sequence[Message] = ()
    user: str | None = None
    type: Literal["run_started"] = "run_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """The last event of a run that ended well.

    Written by the runtime only; an agent that has a `result` yields one as its own last event,
    and the runtime writes that.
    """

    result: Any = None
    type: Literal["run_finished"] = "run_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailed:
    """The last event of any other run; `error` holds only what a client may see."""

    error: ErrorReport
    type: Literal["run_failed"] = "run_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMessageStart:
    """A text begins; `parent_id` is the message it belongs to, `agent` who speaks."""

    message_id: str
    role: Role = "assistant"
    parent_id: str | None = None
    agent: str | None = None
    type: Literal["text_message_start"] = "text_message_start"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMessageContent:
    """One piece of text, never empty."""

    message_id: str
    content: str
    type: Literal["text_message_content"] = "text_message_content"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMessageEnd:
    message_id: str
    type: Literal["text_message_end"] = "text_message_end"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningStart:
    """The model begins to think, before it answers or calls."""

    message_id: str
    type: Literal["reasoning_start"] = "reasoning_start"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningContent:
    message_id: str
    content: str
    type: Literal["reasoning_content"] = "reasoning_content"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningSignature:
    """What a provider wants to see again with a thought, or with the call `entity_id`."""

    entity_id: str
    value: str
    of: Literal["message", "call"] = "message"
    type: Literal["reasoning_signature"] = "reasoning_signature"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningEnd:
    message_id: str
    type: Literal["reasoning_end"] = "reasoning_end"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionExecutionStart:
    """A call begins; `parent_id` is the message it belongs to."""

    call_id: str
    name: str
    parent_id: str | None = None
    type: Literal["action_execution_start"] = "action_execution_start"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionExecutionArgs:
    """One piece of the call's arguments, as JSON text."""

    call_id: str
    delta: str
    type: Literal["action_execution_args"] = "action_execution_args"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionExecutionEnd:
    call_id: str
    type: Literal["action_execution_end"] = "action_execution_end"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionExecutionResult:
    """What an action returned: text as it is, everything else as JSON text.

    It becomes a message of its own, `message_id`, or `result-` and the call's id.
    """

    call_id: str
    name: str
    result: str
    message_id: str | None = None
    type: Literal["action_execution_result"] = "action_execution_result"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState:
    """The whole state of an agent at one moment, nearly always an object."""

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
    """An agent enters a part of its work that has a name."""

    name: str
    type: Literal["step_started"] = "step_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished:
    name: str
    type: Literal["step_finished"] = "step_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt:
    """An agent waits for a person; `messages` may say what to show or to do meanwhile.

    `reason` is a word for programs, `message` a sentence for people. `response_schema` is the
    JSON schema of the answer, `expires_at` an ISO 8601 time, `call_id` the call it is about.
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
    """The whole conversation, as the agent knows it at this moment."""

    messages: Sequence[Message]
    type: Literal["messages_snapshot"] = "messages_snapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What an agent is doing, whole, as a message that the client draws by its `activity_type`.

    Without `replace`, a client that has this activity already keeps what it has.
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
    """How one model call ended, and its tokens as the provider counted them.

    `input_tokens` has those read from a cache (`cached_tokens`) and those written to one,
    `output_tokens` those of reasoning. `stop_reason` is `stop`, `length`, `tool_calls`,
    `content_filter`, `refusal`, `pause`, or the provider's own word for anything else. `provider`
    is the adapter's name in `ADAPTERS`.
    """

    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    provider: str = ""
    stop_reason: str | None = None
    type: Literal["usage"] = "usage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Custom:
    """Whatever has no event of its own; transports that do not know the name leave it out."""

    name: str
    value: Any
    type: Literal["custom"] = "custom"


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """An event of another protocol, as it came; `source` says from where."""

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

LAST = (RunFinished, RunFailed)
"""The events that end a log."""


def dump_event(event: Event) -> bytes:
    """Write an event as JSON, for a log outside this process."""
    return _adapter().dump_json(event)


def load_event(data: bytes) -> Event:
    """Read what `dump_event` wrote. Raises `pydantic.ValidationError` for anything else."""
    return _adapter().validate_json(data)


@cache
def _adapter() -> "TypeAdapter[Event]":
    from pydantic import Discriminator, TypeAdapter  # building it takes 40 ms: only when used

    return TypeAdapter(Annotated[Event, Discriminator("type")])
