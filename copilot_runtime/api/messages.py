"""Messages: texts, images, tool calls, results, reasoning, agent states and activities.

`extra` has further protocol fields of a message (AG-UI: `metadata`, `encryptedValue`,
`subagentRunId`); they are passed to clients and agents of that protocol unread.
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
    """An image, audio, video or document: `value` is base64 text, a URL or a provider's file id.

    `provider` is the provider that issued the file id, if known.
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
    """A text message. A multimodal message also has `parts`; `content` is then only their text."""

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
    """A tool call; `id` is the call's id, `arguments` the JSON text of an object."""

    id: str
    name: str
    arguments: str
    parent_id: str | None = None
    extra: Mapping[str, Any] | None = None
    type: Literal["action_execution"] = "action_execution"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultMessage:
    """The result of the call `call_id` as text, with its content parts, if any.

    `result` is the text of text parts, or the JSON of the parts otherwise.
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
    """Reasoning of a model; `signature` is the value of its `ReasoningSignature`."""

    id: str
    content: str
    signature: str | None = None
    extra: Mapping[str, Any] | None = None
    type: Literal["reasoning"] = "reasoning"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityMessage:
    """An activity of an agent that clients render."""

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


def collect_ids(messages: Sequence[Message]) -> set[str]:
    """Return the ids that a conversation uses, including those of answers with calls only."""
    ids = {message.id for message in messages}
    for message in messages:
        if isinstance(message, ActionExecutionMessage) and message.parent_id:
            ids.add(message.parent_id)
    return ids


def is_placeholder_result(text: str) -> bool:
    """Return whether a result is only a placeholder for a call forwarded to the frontend.

    Some agents, such as those of Strands, need it to wait for the frontend; clients ignore it.
    """
    return text.strip() == "Forwarded to client"


def is_real_result(message: Message) -> TypeGuard[ResultMessage]:
    """Return whether a message is the result of a call, and not a placeholder."""
    return isinstance(message, ResultMessage) and not is_placeholder_result(message.result)


def drop_empty_results(messages: Sequence[Message]) -> Sequence[Message]:
    """Drop empty and placeholder results of calls that also have a real result.

    A frontend that only renders a server action sends an empty result before the server does.
    """
    results = [message for message in messages if isinstance(message, ResultMessage)]
    if not results:
        return messages
    real = {result.call_id for result in results if not _is_empty(result)}
    empty = {id(r) for r in results if _is_empty(r) and r.call_id in real}
    return [message for message in messages if id(message) not in empty] if empty else messages


def _is_empty(result: ResultMessage) -> bool:
    return not (result.result or result.error) or is_placeholder_result(result.result)


def new_uuid() -> str:
    """Return a random UUID (version 4), five times as fast as `uuid.uuid4`."""
    digits = urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def new_id() -> str:
    """Return an id in the format of CopilotKit's clients (`randomId`)."""
    return f"ck-{new_uuid()}"
