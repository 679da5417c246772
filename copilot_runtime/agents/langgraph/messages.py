"""A conversation as LangChain writes it in JSON, and as we do."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid5

from copilot_runtime.agents.copilotkit_form import encode_messages as encode_for_v1
from copilot_runtime.agui.messages import encode_messages
from copilot_runtime.jsontext import dumps, loads
from copilot_runtime.jsonvalue import JsonObject, as_list, as_object, as_objects, to_text
from copilot_runtime.messages import (
    ActionExecutionMessage,
    MediaPart,
    Message,
    Part,
    ResultMessage,
    TextMessage,
    TextPart,
)

_TYPES = {"user": "human", "system": "system", "developer": "system"}
_ROLES = {"human": "user", "HumanMessage": "user", "system": "system", "SystemMessage": "system"}
_BLOCKS = {"image": "image", "audio": "audio", "video": "video"}
"""Kinds of parts that LangChain has a block for; anything else is a file."""
_INTERRUPTED = re.compile(r"Tool call '.+' with id '.+' was interrupted before completion\.")
_KINDS = ("human", "ai", "tool", "system")
_UNNAMED = UUID("3b0f8a52-9d3e-4c1b-8a35-6a2f6f1b7c90")


def encode(messages: Sequence[Message]) -> list[JsonObject]:
    """Return what LangChain has words for: texts, with their media and calls, and results."""
    names = {m.id: m.name for m in messages if isinstance(m, ActionExecutionMessage)}
    return [said for one in encode_messages(messages) if (said := _encoded(one, names)) is not None]


def decode(messages: Any) -> list[Message]:
    """Return a thread's messages; what cannot be read is left out."""
    decoded: list[Message] = []
    names: dict[str, str] = {}
    for message in plain(messages):
        id, kind = message["id"], kind_of(message)
        text = text_of(message.get("content"))
        if kind == "ai":
            calls = calls_of(message)
            if text or not calls:
                decoded.append(TextMessage(id=id, role="assistant", content=text))
            for call in calls:
                names[call["id"]] = call["name"]
                arguments = dumps(call["args"]).decode()
                decoded.append(
                    ActionExecutionMessage(
                        id=call["id"], name=call["name"], arguments=arguments, parent_id=id
                    )
                )
        elif kind == "tool":
            call_id = str(message.get("tool_call_id") or "")
            name = names.get(call_id) or str(message.get("name") or "")
            decoded.append(ResultMessage(id=id, call_id=call_id, name=name, result=text))
        elif kind == "human":
            parts = _parts(message.get("content"))
            decoded.append(TextMessage(id=id, role="user", content=text, parts=parts))
        elif kind == "system":
            decoded.append(TextMessage(id=id, role="system", content=text))
    return decoded


def remembered(messages: Any) -> list[JsonObject]:
    """Return a thread's messages as CopilotKit's runtime for Node writes them, to the letter."""
    told: list[JsonObject] = []
    for message in encode_for_v1(decode(messages)):
        if "content" in message:
            id, role = message["id"], message["role"]
            message = {"role": role, "content": message["content"], "id": id}
            if role == "assistant":
                message["parentMessageId"] = id
        told.append(message)
    return told


def plain(messages: Any) -> list[JsonObject]:
    """Return the messages among these, free of LangChain's own packaging, each with an id.

    A state that just lists its messages gives them none; then it is made of what they say.
    """
    found = [unpacked(message) for message in as_list(messages)]
    told: Counter[bytes] = Counter()
    named: list[JsonObject] = []
    for message in found:
        if not isinstance(message.get("id"), str):
            if kind_of(message) not in _KINDS:
                continue
            said = dumps([kind_of(message), message.get("content"), message.get("tool_calls")])
            told[said] += 1
            message = {**message, "id": str(uuid5(_UNNAMED, f"{said!r} {told[said]}"))}
        named.append(message)
    return named


def unpacked(message: Any) -> JsonObject:
    """Return a message's fields, also of one that JavaScript has written as a constructor."""
    if not isinstance(message, dict):
        return {}
    fields = message.get("kwargs")
    if message.get("lc") and isinstance(fields, dict):
        path = message.get("id")
        return {"type": path[-1] if isinstance(path, list) and path else "", **fields}
    return message


def kind_of(message: Mapping[str, Any]) -> str:
    """Return `human`, `ai`, `tool`, `system`, or something else."""
    kind = str(message.get("type") or message.get("role") or "")
    return kind.removesuffix("Chunk").removesuffix("Message").lower() or kind


def calls_of(message: Mapping[str, Any]) -> list[JsonObject]:
    """Return the calls of a message that can be told apart, their arguments as an object."""
    calls = message.get("tool_calls")
    return [
        {**call, "args": arguments_of(call.get("args"))}
        for call in as_objects(calls)
        if isinstance(call.get("id"), str) and isinstance(call.get("name"), str)
    ]


def text_of(content: Any) -> str:
    """Return the text in a message's content, which may be blocks; of none, its JSON."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_block_text(block) for block in content)
    return "" if content is None else to_text(content)


def arguments_of(value: Any) -> Any:
    """Return the object that a call is made with; models refuse anything else."""
    if isinstance(value, str):
        try:
            value = loads(value.encode(errors="replace"))
        except ValueError:
            return {}
    return as_object(value)


def interrupted(call: Mapping[str, Any]) -> JsonObject:
    """Return what stands for the result of a call that has none, in the words of LangGraph."""
    id, name = call["id"], call["name"]
    said = f"Tool call {name!r} with id {id!r} was interrupted before completion."
    return {"type": "tool", "id": f"none-{id}", "content": said, "tool_call_id": id, "name": name}


def is_interrupted(message: Mapping[str, Any]) -> bool:
    """Say whether a result stands for one that has not come."""
    said = text_of(message.get("content")) if kind_of(message) == "tool" else ""
    return _INTERRUPTED.fullmatch(said) is not None


def _block_text(block: Any) -> str:
    if isinstance(block, str):
        return block
    if isinstance(block, dict) and block.get("type") in ("text", "text_delta", None):
        return str(block.get("text") or "")
    return ""


def _encoded(message: Mapping[str, Any], names: Mapping[str, str]) -> JsonObject | None:
    id, content = message["id"], message.get("content", "")
    match message["role"]:
        case "assistant":
            calls = [_call(call) for call in message.get("toolCalls", ())]
            return {"type": "ai", "id": id, "content": content or "", "tool_calls": calls}
        case "tool":
            call_id = message["toolCallId"]
            named = {"name": names[call_id]} if call_id in names else {}
            failed = {"status": "error"} if "error" in message else {}
            said = {"type": "tool", "id": id, "content": content, "tool_call_id": call_id}
            return {**said, **named, **failed}
        case role if role in _TYPES:
            if isinstance(content, list):
                content = [block for part in content if (block := _block(part)) is not None]
            return {"type": _TYPES[role], "id": id, "content": content}
        case _:  # thoughts and activities are not for the model
            return None


def _call(call: Mapping[str, Any]) -> JsonObject:
    function = call["function"]
    arguments = arguments_of(function["arguments"])
    return {"id": call["id"], "name": function["name"], "args": arguments, "type": "tool_call"}


def _block(part: Mapping[str, Any]) -> JsonObject | None:
    """Return a part of AG-UI as a content block; a provider's own id means nothing elsewhere."""
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    if part["type"] == "binary":
        source = {"mimeType": part["mimeType"]}
        source |= {"type": "data", "value": part["data"]} if "data" in part else {}
        source |= {"type": "url", "value": part["url"]} if "url" in part else {}
    else:
        source = part["source"]
    mime_type = source.get("mimeType")
    kind = part["type"] if part["type"] != "binary" else str(mime_type).partition("/")[0]
    if "value" not in source:
        return None
    if kind == "image":  # the one form that every model of LangChain has learnt
        is_data = source["type"] == "data"
        url = f"data:{mime_type};base64,{source['value']}" if is_data else source["value"]
        return {"type": "image_url", "image_url": {"url": url}}
    where = "base64" if source["type"] == "data" else "url"
    typed = {"mime_type": mime_type} if mime_type else {}
    return {"type": _BLOCKS.get(kind, "file"), where: source["value"], **typed}


def _parts(content: Any) -> tuple[Part, ...]:
    """Return the parts of a content that is more than text."""
    if not isinstance(content, list):
        return ()
    parts = tuple(part for block in content if (part := _part(block)) is not None)
    return parts if any(isinstance(part, MediaPart) for part in parts) else ()


def _part(block: Any) -> Part | None:
    match block:
        case {"type": "text", "text": str(text)}:
            return TextPart(text=text)
        case {"type": "image_url", "image_url": {"url": str(url)} | str(url)}:
            head, comma, data = url.partition(";base64,")
            if comma and head.startswith("data:"):
                mime_type = head.removeprefix("data:")
                return MediaPart(kind="image", source="data", value=data, mime_type=mime_type)
            return MediaPart(kind="image", source="url", value=url)
        case _:
            return None


def ids_of(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the ids of messages that people see, in their order."""
    return [message["id"] for message in messages if kind_of(message) in ("human", "ai", "tool")]
