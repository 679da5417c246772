"""Messages as content attributes of spans: roles and parts, as the GenAI conventions define them.

Each value is truncated to `MAX_CHARACTERS` of JSON.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, assert_never

from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ActivityMessage,
    AgentStateMessage,
    ImageMessage,
    MediaPart,
    Message,
    ReasoningMessage,
    ResultMessage,
    TextMessage,
    TextPart,
)
from copilot_runtime.base.jsontext import replace_surrogates
from copilot_runtime.telemetry.content import JsonPart, limit, parse_json

_MAX_MESSAGES = 200
"""Maximum number of recorded messages, the newest; a part gives the number of omitted ones."""


_FINISH_REASONS = {"tool_calls": "tool_call", "refusal": "content_filter"}
"""The conventions' finish reasons, where they differ from `Usage.stop_reason`."""
_SOURCES = {"data": ("blob", "content"), "url": ("uri", "uri"), "id": ("file", "file_id")}
"""The conventions' type of a medium and the field of its value, by `MediaPart.source`."""


def render_request(messages: Sequence[Message]) -> tuple[list[JsonPart], list[JsonPart]]:
    """Return the system instructions and the other messages of a model request.

    Instructions are the leading system messages; later system messages keep their position.
    """
    start = 0
    for message in messages:
        if not isinstance(message, TextMessage) or message.role not in ("system", "developer"):
            break
        start += 1
    system = [part for message in messages[:start] for part in _render_parts(message)]
    first = max(start, len(messages) - _MAX_MESSAGES)
    rendered = render_messages(messages[first:])
    if first > start:
        omitted = {"type": "omitted", "count": first - start}
        rendered.insert(0, {"role": "system", "parts": [omitted]})
    return limit(system), limit(rendered)


def render_question(messages: Sequence[Message]) -> list[JsonPart]:
    """Return the user's last message and those after it, such as results of the page's tools."""
    start = len(messages)
    for message in reversed(messages):
        start -= 1
        if isinstance(message, TextMessage | ImageMessage) and message.role == "user":
            break
    return limit(render_messages(messages[max(start, len(messages) - _MAX_MESSAGES) :]))


def render_answer(messages: Iterable[Message], stop_reason: str | None) -> list[JsonPart]:
    """Return the messages of a model's answer. `stop_reason` is None for an aborted answer."""
    rendered = [one for one in render_messages(messages) if one["role"] == "assistant"]
    reason = _FINISH_REASONS.get(stop_reason or "error", stop_reason or "error")
    for message in rendered:
        message["finish_reason"] = reason
    return limit(rendered)


def render_messages(messages: Iterable[Message]) -> list[JsonPart]:
    """Return messages in order; adjacent texts and calls of the assistant form one message."""
    rendered: list[JsonPart] = []
    for message in messages:
        parts = _render_parts(message)
        if not parts:
            continue
        role, name = _name_role(message), getattr(message, "name", None)
        if role == "assistant" and rendered and rendered[-1]["role"] == role:
            rendered[-1]["parts"] += parts
            continue
        entry: JsonPart = {"role": role, "parts": parts}
        if name and isinstance(message, TextMessage):
            entry["name"] = name
        rendered.append(entry)
    return rendered


def _name_role(message: Message) -> str:
    match message:
        case TextMessage() | ImageMessage():
            return message.role
        case ResultMessage():
            return "tool"
        case (
            ActionExecutionMessage() | ReasoningMessage() | AgentStateMessage() | ActivityMessage()
        ):
            return "assistant"
        case _:
            assert_never(message)


def _render_parts(message: Message) -> list[JsonPart]:
    match message:
        case TextMessage(parts=parts) if parts:
            return [_render_part(part) for part in parts]
        case TextMessage(content=text):
            return [{"type": "text", "content": replace_surrogates(text)}] if text else []
        case ImageMessage():
            mime = f"image/{message.format}"
            return [_build_media("blob", "image", mime, content=message.bytes)]
        case ActionExecutionMessage():
            arguments = parse_json(message.arguments)
            call = {"type": "tool_call", "id": message.id, "name": message.name}
            return [{**call, "arguments": arguments}]
        case ResultMessage():
            response = parse_json(message.result or message.error or "")
            return [{"type": "tool_call_response", "id": message.call_id, "response": response}]
        case ReasoningMessage(content=text):
            return [{"type": "reasoning", "content": replace_surrogates(text)}] if text else []
        case AgentStateMessage() | ActivityMessage():  # models do not get them
            return []
        case _:
            assert_never(message)


def _render_part(part: TextPart | MediaPart) -> JsonPart:
    match part:
        case TextPart():
            return {"type": "text", "content": replace_surrogates(part.text)}
        case MediaPart():
            type, field = _SOURCES[part.source]
            media = _build_media(type, part.kind, part.mime_type, **{field: part.value})
            metadata: Any = part.metadata if isinstance(part.metadata, Mapping) else {}
            name = part.filename or metadata.get("filename")
            return {**media, "filename": replace_surrogates(str(name))} if name else media
        case _:
            assert_never(part)


def _build_media(type: str, modality: str, mime_type: str | None, **value: str) -> JsonPart:
    part: JsonPart = {"type": type, "modality": modality}
    if mime_type:
        part["mime_type"] = mime_type
    return {**part, **value}
