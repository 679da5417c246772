"""Convert conversations between AG-UI (0.0.59 and 1.0) and our messages.

An assistant message of AG-UI, with its text and calls, is a `TextMessage` and the
`ActionExecutionMessage`s whose parent it is. Other fields of AG-UI are passed on unread, as
`extra`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from copilot_runtime.agui.parts import decode_parts, encode_part, flatten_result, join_texts
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ActivityMessage,
    AgentStateMessage,
    ImageMessage,
    MediaPart,
    Message,
    Part,
    ReasoningMessage,
    ResultMessage,
    TextMessage,
)
from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import (
    optional_text,
    require_list,
    require_object,
    require_text,
)

_ROLES = "user, assistant, system, developer, tool, reasoning, activity"
_EXTRA = ("encryptedValue", "metadata", "subagentRunId")


def decode_messages(
    messages: list[Any],
    where: str = "messages",
    *,
    first: int = 0,
    names: dict[str, str] | None = None,
) -> list[Message]:
    """Decode a conversation. Raises `Misuse`, which names the message and the field.

    Of a part of one, `first` is the place of its first message. `names` has the names of the calls
    before, and gets those of this part.
    """
    decoded: list[Message] = []
    names = {} if names is None else names
    for at, message in enumerate(messages, first):
        place = f"{where}[{at}]"
        fields = require_object(message, place)
        id, role = require_text(fields, "id", place), require_text(fields, "role", place)
        match role:
            case "user" | "assistant" if (
                type(text := fields.get("content")) is str and len(fields) == 3
            ):
                decoded.append(TextMessage(id=id, role=role, content=text))  # as most messages
            case "user":
                decoded.append(_decode_user(id, fields, place))
            case "assistant":
                decoded += _decode_assistant(id, fields, place, names)
            case "tool":
                decoded.append(_decode_result(id, fields, place, names))
            case "reasoning":
                decoded.append(
                    ReasoningMessage(
                        id=id,
                        content=_decode_text(fields, place),
                        signature=optional_text(fields, "encryptedValue", place),
                        extra=_decode_extra(fields, place, without="encryptedValue"),
                    )
                )
            case "activity":
                decoded.append(_decode_activity(id, fields, place))
            case "system" | "developer":
                decoded.append(
                    TextMessage(
                        id=id,
                        role=role,
                        content=_decode_text(fields, place),
                        name=optional_text(fields, "name", place),
                        extra=_decode_extra(fields, place),
                    )
                )
            case _:
                raise Misuse(f"{place}.role is {role[:40]!r}, which is none of {_ROLES}.")
    return decoded


def encode_messages(messages: Sequence[Message], *, legacy: bool = True) -> list[dict[str, Any]]:
    """Return a conversation as JSON; with `legacy`, for peers older than AG-UI 1.0.

    Calls are part of their parent message. Messages that AG-UI cannot represent are omitted:
    states of agents, and texts with the role of a tool.
    """
    encoded: list[dict[str, Any]] = []
    by_id: dict[str, dict[str, Any]] = {}
    for message in messages:
        id = message.id
        match message:
            case TextMessage(role="tool") | AgentStateMessage():
                continue
            case TextMessage(role="assistant") if _has_only_calls(by_id.get(message.id)):
                by_id[message.id] |= _encode(message, legacy)
                continue
            case ActionExecutionMessage():
                parent = by_id.get(message.parent_id or message.id)
                if parent is not None and parent["role"] == "assistant":
                    parent.setdefault("toolCalls", []).append(_encode_call(message))
                    continue
                if parent is None:
                    id = message.parent_id or id
                item = {"id": id, "role": "assistant", "toolCalls": [_encode_call(message)]}
            case _:
                item = _encode(message, legacy)
        encoded.append(item)
        by_id[id] = item
    return encoded


def _has_only_calls(encoded_message: Mapping[str, Any] | None) -> bool:
    """Return whether a message has calls, but no text yet."""
    return (
        encoded_message is not None
        and "toolCalls" in encoded_message
        and "content" not in encoded_message
    )


def _decode_user(id: str, fields: dict[str, Any], where: str) -> TextMessage:
    content = fields.get("content")
    parts: tuple[Part, ...] = ()
    if isinstance(content, list):
        parts = decode_parts(content, f"{where}.content")
        content = join_texts(parts)
    elif content is not None and not isinstance(content, str):
        raise Misuse(f"{where}.content must be a string or a list of parts.")
    return TextMessage(
        id=id,
        role="user",
        content=content or "",
        name=optional_text(fields, "name", where),
        parts=parts,
        extra=_decode_extra(fields, where),
    )


def _decode_assistant(
    id: str, fields: dict[str, Any], where: str, names: dict[str, str]
) -> Sequence[Message]:
    calls = fields.get("toolCalls")
    name, extra = optional_text(fields, "name", where), _decode_extra(fields, where)
    decoded: list[Message] = []
    if not calls or fields.get("content") is not None or name is not None or extra is not None:
        text = _decode_text(fields, where)
        decoded.append(TextMessage(id=id, role="assistant", content=text, name=name, extra=extra))
    if calls is not None:
        for at, call in enumerate(require_list(calls, f"{where}.toolCalls")):
            place = f"{where}.toolCalls[{at}]"
            call_message = _decode_call(require_object(call, place), id, place)
            names[call_message.id] = call_message.name
            decoded.append(call_message)
    return decoded


def _decode_call(fields: dict[str, Any], parent: str, where: str) -> ActionExecutionMessage:
    """Decode a call, in the format of AG-UI or of `GET /threads/{thread}/messages`."""
    function, place, key = fields, where, "args"
    if "args" not in fields or "function" in fields:
        place, key = f"{where}.function", "arguments"
        function = require_object(fields.get("function"), place)
    arguments = function.get(key)
    return ActionExecutionMessage(
        id=require_text(fields, "id", where),
        name=require_text(function, "name", place),
        arguments=(
            dumps(arguments).decode()
            if isinstance(arguments, dict)  # some agents do not encode them
            else require_text(function, key, place)
        ),
        parent_id=parent,
        extra=_decode_extra(fields, where),
    )


def _decode_result(
    id: str, fields: dict[str, Any], where: str, names: Mapping[str, str]
) -> ResultMessage:
    call_id, content = require_text(fields, "toolCallId", where), fields.get("content")
    parts: tuple[Part, ...] = ()
    if isinstance(content, list):
        parts = decode_parts(content, f"{where}.content")
    return ResultMessage(
        id=id,
        call_id=call_id,
        name=names.get(call_id, ""),
        result=flatten_result(content, parts) if parts else _decode_text(fields, where),
        parts=parts,
        error=optional_text(fields, "error", where),
        extra=_decode_extra(fields, where),
    )


def _decode_activity(id: str, fields: dict[str, Any], where: str) -> ActivityMessage:
    content = fields.get("content")
    return ActivityMessage(
        id=id,
        activity_type=require_text(fields, "activityType", where),
        content={} if content is None else require_object(content, f"{where}.content"),
        extra=_decode_extra(fields, where),
    )


def _decode_text(fields: dict[str, Any], where: str) -> str:
    """Return the content of a text-only message, which some peers send as parts."""
    content = fields.get("content")
    if content is None:
        return ""
    if isinstance(content, list):
        parts = decode_parts(content, f"{where}.content")
        if not any(isinstance(part, MediaPart) for part in parts):
            return join_texts(parts)
        raise Misuse(f"{where}.content must be text: only users send more.")
    return require_text(fields, "content", where)


def _decode_extra(fields: dict[str, Any], where: str, without: str = "") -> dict[str, Any] | None:
    extra = {key: fields[key] for key in _EXTRA if fields.get(key) is not None and key != without}
    for key, value in extra.items():
        if key == "metadata":
            require_object(value, f"{where}.{key}")
        else:
            require_text(fields, key, where)
    return extra or None


def _encode(
    message: TextMessage | ImageMessage | ResultMessage | ReasoningMessage | ActivityMessage,
    legacy: bool,
) -> dict[str, Any]:
    encoded_message: dict[str, Any] = {"id": message.id}
    match message:
        case TextMessage():
            encoded_message["role"] = message.role
            in_parts = message.role == "user" and message.parts
            encoded_message["content"] = (
                _encode_parts(message.parts, legacy) if in_parts else message.content
            )
            if message.name is not None:
                encoded_message["name"] = message.name
        case ImageMessage():
            parts = _encode_parts([_image_part(message)], legacy)
            encoded_message |= {"role": "user", "content": parts}
        case ResultMessage():
            encoded_message |= {
                "role": "tool",
                "toolCallId": message.call_id,
                "content": _encode_parts(message.parts, legacy)
                if message.parts and not legacy
                else message.result,
            }
            if message.error is not None:
                encoded_message["error"] = message.error
        case ReasoningMessage():
            encoded_message |= {"role": "reasoning", "content": message.content}
            if message.signature is not None:
                encoded_message["encryptedValue"] = message.signature
        case ActivityMessage():
            encoded_message |= {
                "role": "activity",
                "activityType": message.activity_type,
                "content": message.content,
            }
        case _:
            assert_never(message)
    if not isinstance(message, ImageMessage) and message.extra:
        encoded_message |= message.extra
    return encoded_message


def _encode_parts(parts: Sequence[Part], legacy: bool) -> list[dict[str, Any]]:
    return [encode_part(part, legacy=legacy) for part in parts]


def _encode_call(message: ActionExecutionMessage) -> dict[str, Any]:
    function = {"name": message.name, "arguments": message.arguments}
    return {"id": message.id, "type": "function", "function": function, **(message.extra or {})}


def _image_part(image: ImageMessage) -> MediaPart:
    """Return a v1 client's image as a part; its `format` is the subtype of the MIME type."""
    name = image.format.lower().removeprefix("image/")
    mime_type = f"image/{'jpeg' if name == 'jpg' else name}"
    return MediaPart(kind="image", source="data", value=image.bytes, mime_type=mime_type)
