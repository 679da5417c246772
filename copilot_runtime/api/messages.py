"""What a conversation is made of: texts, images, action calls, results, thoughts, states.

`extra` has the other fields of a message in its protocol (AG-UI: `metadata`, `encryptedValue`,
`subagentRunId`): they are passed on to clients and agents of that protocol, and not read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import urandom
from typing import Any, Literal, TypeGuard

Role = Literal["user", "assistant", "system", "tool", "developer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    text: str
    id: str | None = None
    metadata: Any = None
    type: Literal["text"] = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaPart:
    """Something to look at or to listen to: `value` is base64 text, an URL or a provider's id.

    `provider` is whose id it is, if that is known.
    """

    kind: Literal["image", "audio", "video", "document", "binary"]
    source: Literal["data", "url", "id"]
    value: str
    mime_type: str | None = None
    filename: str | None = None
    metadata: Any = None
    id: str | None = None
    provider: str | None = None
    type: Literal["media"] = "media"


Part = TextPart | MediaPart


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMessage:
    """A text; one that is more than text also has `parts`, and `content` is only their text."""

    id: str
    role: Role
    content: str
    parent_id: str | None = None
    name: str | None = None
    parts: Sequence[Part] = ()
    extra: Mapping[str, Any] | None = None
    type: Literal["text"] = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageMessage:
    """An image; `bytes` is base64 text, `format` a file extension such as `png`."""

    id: str
    role: Role
    format: str
    bytes: str
    parent_id: str | None = None
    type: Literal["image"] = "image"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionExecutionMessage:
    """A call the model made; `id` is the call's id, `arguments` JSON text of an object."""

    id: str
    name: str
    arguments: str
    parent_id: str | None = None
    extra: Mapping[str, Any] | None = None
    type: Literal["action_execution"] = "action_execution"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultMessage:
    """What came of the call `call_id`, as text; one in parts has these beside it.

    `result` is the text of parts that are texts, and the JSON of others.
    """

    id: str
    call_id: str
    name: str
    result: str
    error: str | None = None
    parts: Sequence[Part] = ()
    extra: Mapping[str, Any] | None = None
    type: Literal["result"] = "result"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStateMessage:
    """The state of an agent, as the client stores or shows it."""

    id: str
    agent: str
    state: Any
    node: str = ""
    thread_id: str = ""
    run_id: str = ""
    active: bool = False
    running: bool = False
    type: Literal["agent_state"] = "agent_state"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningMessage:
    """What a model thought; `signature` is for its provider's eyes."""

    id: str
    content: str
    signature: str | None = None
    extra: Mapping[str, Any] | None = None
    type: Literal["reasoning"] = "reasoning"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityMessage:
    """What an agent was doing, as the client drew it."""

    id: str
    activity_type: str
    content: Any
    extra: Mapping[str, Any] | None = None
    type: Literal["activity"] = "activity"


Message = (
    TextMessage
    | ImageMessage
    | ActionExecutionMessage
    | ResultMessage
    | AgentStateMessage
    | ReasoningMessage
    | ActivityMessage
)


def is_placeholder_result(text: str) -> bool:
    """Return whether a result only says that the call went to the page. Clients take it for none.

    Some agents, such as those of Strands, cannot wait for a page otherwise.
    """
    return text.strip() == "Forwarded to client"


def is_real_result(message: Message) -> TypeGuard[ResultMessage]:
    """Return whether a message is the result of a call, and no placeholder for one."""
    return isinstance(message, ResultMessage) and not is_placeholder_result(message.result)


def drop_empty_results(messages: Sequence[Message]) -> Sequence[Message]:
    """Return messages without empty results, and placeholders, of calls with another result, too.

    A page that only draws an action of the server sends an empty one before the server's.
    """
    results = [message for message in messages if isinstance(message, ResultMessage)]
    real = {result.call_id for result in results if not _is_empty(result)}
    empty = {id(r) for r in results if _is_empty(r) and r.call_id in real}
    return [message for message in messages if id(message) not in empty] if empty else messages


def _is_empty(result: ResultMessage) -> bool:
    return not (result.result or result.error) or is_placeholder_result(result.result)


def new_uuid() -> str:
    """Return a UUID of version 4, in a fifth of the time that Python's takes."""
    digits = urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def new_id() -> str:
    """Return an id that looks like those of CopilotKit's clients (`randomId`)."""
    return f"ck-{new_uuid()}"
