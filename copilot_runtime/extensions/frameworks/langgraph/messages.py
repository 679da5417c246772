"""Converts conversations between our messages and those of LangChain in JSON."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid5

from copilot_runtime.agents.v1_state import encode_messages as encode_for_v1
from copilot_runtime.agui.messages import encode_messages
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    MediaPart,
    Message,
    Part,
    ResultMessage,
    TextMessage,
    TextPart,
)
from copilot_runtime.base.jsontext import dumps, join_pieces
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    as_list,
    as_object,
    as_objects,
    as_text,
    parse_text,
    to_text,
)

_LANGCHAIN_TYPES = {"user": "human", "system": "system", "developer": "system"}
_BLOCKS = {"image": "image", "audio": "audio", "video": "video"}
"""Kinds of parts with a LangChain block type; other kinds are files."""
_PLACEHOLDER = re.compile(r"Tool call '.+' with id '.+' was interrupted before completion\.")
_KINDS = ("human", "ai", "tool", "system")
_ID_NAMESPACE = UUID("3b0f8a52-9d3e-4c1b-8a35-6a2f6f1b7c90")


def encode_langchain(messages: Sequence[Message]) -> list[JsonObject]:
    """Return the texts, with their media and calls, and the results, as LangChain's JSON."""
    names = {m.id: m.name for m in messages if isinstance(m, ActionExecutionMessage)}
    encoded = (_encode_message(message, names) for message in encode_messages(messages))
    return [message for message in encoded if message is not None]


def decode_langchain(messages: Any) -> list[Message]:
    """Return messages for LangChain's JSON; undecodable ones are skipped."""
    decoded: list[Message] = []
    names: dict[str, str] = {}
    for message in normalize_messages(messages):
        id, kind = message["id"], read_kind(message)
        text = extract_text(message.get("content"))
        if kind == "ai":
            calls = parse_tool_calls(message)
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
            parts = _decode_parts(message.get("content"))
            decoded.append(TextMessage(id=id, role="user", content=text, parts=parts))
        elif kind == "system":
            decoded.append(TextMessage(id=id, role="system", content=text))
    return decoded


def encode_v1_history(messages: Any) -> list[JsonObject]:
    """Return a thread's visible messages in the JSON of CopilotKit's runtime for Node."""
    history: list[JsonObject] = []
    visible = [message for message in normalize_messages(messages) if not is_hidden(message)]
    for message in encode_for_v1(decode_langchain(visible)):
        if "content" in message:
            id, role = message["id"], message["role"]
            message = {"role": role, "content": message["content"], "id": id}
            if role == "assistant":
                message["parentMessageId"] = id
        history.append(message)
    return history


def normalize_messages(messages: Any) -> list[JsonObject]:
    """Return the messages in a list, without LangChain's constructor form, each with an id.

    The messages of a state without `add_messages` have none; then it is a hash of the content.
    """
    items = [unwrap_message(message) for message in as_list(messages)]
    repeats: Counter[bytes] = Counter()
    normalized: list[JsonObject] = []
    for message in items:
        if not isinstance(message.get("id"), str):
            if read_kind(message) not in _KINDS:
                continue
            data = dumps([read_kind(message), message.get("content"), message.get("tool_calls")])
            repeats[data] += 1
            id = str(uuid5(_ID_NAMESPACE, f"{data!r} {repeats[data]}"))
            message = {**message, "id": id}
        normalized.append(message)
    return normalized


def unwrap_message(message: Any) -> JsonObject:
    """Return the fields of a message: JSON, a JavaScript constructor in JSON, or an object.

    Those of an object are its own: do not change them. Anything else has no fields.
    """
    if not isinstance(message, dict):
        fields = getattr(message, "__dict__", None)
        return fields if isinstance(fields, dict) and "content" in fields else {}
    fields = message.get("kwargs")
    if isinstance(fields, dict):
        path = message.get("id")
        return {"type": path[-1] if isinstance(path, list) and path else "", **fields}
    return message


def read_kind(message: Mapping[str, Any]) -> str:
    """Return `human`, `ai`, `tool`, `system`, or something else."""
    kind = str(message.get("type") or message.get("role") or "")
    return kind.removesuffix("Chunk").removesuffix("Message").lower() or kind


def parse_tool_calls(message: Mapping[str, Any]) -> list[JsonObject]:
    """Return the calls of a message that have an id and a name, their arguments as an object."""
    calls = message.get("tool_calls")
    return [
        {**call, "args": parse_arguments(call.get("args"))}
        for call in as_objects(calls)
        if isinstance(call.get("id"), str) and isinstance(call.get("name"), str)
    ]


def parse_tool_results(output: Any) -> list[JsonObject]:
    """Return the results in a tool's output: a result, or a command (`Command`) that adds some."""
    update = output.get("update") if isinstance(output, dict) else getattr(output, "update", None)
    messages = as_list(update.get("messages")) if isinstance(update, dict) else [output]
    return [one for message in messages if read_kind(one := unwrap_message(message)) == "tool"]


def extract_text(content: Any) -> str:
    """Return the text in a message's content, which may be blocks; of none, its JSON."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [text for block in content if (text := _block_text(block))]
        return texts[0] if len(texts) == 1 else join_pieces(texts)
    return "" if content is None else to_text(content)


def parse_arguments(value: Any) -> Any:
    """Return the arguments of a call as an object; models refuse anything else."""
    return as_object(parse_text(value))


def build_placeholder_result(call: Mapping[str, Any]) -> JsonObject:
    """Return a result for a call that has none, with LangGraph's own sentence."""
    id, name = call["id"], call["name"]
    content = f"Tool call {name!r} with id {id!r} was interrupted before completion."
    return {
        "type": "tool",
        "id": f"none-{id}",
        "content": content,
        "tool_call_id": id,
        "name": name,
    }


def is_placeholder(message: Mapping[str, Any]) -> bool:
    """Return whether a message is such a result."""
    text = extract_text(message.get("content")) if read_kind(message) == "tool" else ""
    return _PLACEHOLDER.fullmatch(text) is not None


_HIDDEN_PREFIX = "do-not-render-"
"""Start of the ids of messages that LangChain's own chat page does not show, either.

https://github.com/langchain-ai/agent-chat-ui#hiding-messages-in-the-chat
"""
_HIDDEN_KEYS = ("hide_from_ui", "hide", "hidden")


def is_hidden(message: Mapping[str, Any]) -> bool:
    """Return whether a message of a graph is not for the person in front of the page.

    These are system messages, and messages that LangChain's middleware adds for the model, such as
    a summary (`lc_source`): https://github.com/langchain-ai/langchain/pull/34693. The author of a
    graph hides a message by the prefix of its id, or in its `additional_kwargs`.
    """
    further = as_object(message.get("additional_kwargs"))
    return (
        read_kind(message) == "system"
        or isinstance(further.get("lc_source"), str)
        or any(further.get(key) is True for key in _HIDDEN_KEYS)
        or str(message.get("id")).startswith(_HIDDEN_PREFIX)
    )


def _block_text(block: Any) -> str:
    if isinstance(block, str):
        return block
    if isinstance(block, dict) and block.get("type") in ("text", "text_delta", None):
        return as_text(block.get("text"))
    return ""


def _encode_message(message: Mapping[str, Any], names: Mapping[str, str]) -> JsonObject | None:
    id, content = message["id"], message.get("content", "")
    match message["role"]:
        case "assistant":
            calls = [_encode_call(call) for call in message.get("toolCalls", ())]
            return {"type": "ai", "id": id, "content": content or "", "tool_calls": calls}
        case "tool":
            call_id = message["toolCallId"]
            name = {"name": names[call_id]} if call_id in names else {}
            status = {"status": "error"} if "error" in message else {}
            result = {"type": "tool", "id": id, "content": content, "tool_call_id": call_id}
            return {**result, **name, **status}
        case role if role in _LANGCHAIN_TYPES:
            if isinstance(content, list):
                content = [block for part in content if (block := _encode_part(part)) is not None]
            return {"type": _LANGCHAIN_TYPES[role], "id": id, "content": content}
        case _:  # reasoning and activities are not for the model
            return None


def _encode_call(call: Mapping[str, Any]) -> JsonObject:
    function = call["function"]
    arguments = parse_arguments(function["arguments"])
    return {"id": call["id"], "name": function["name"], "args": arguments, "type": "tool_call"}


def _encode_part(part: Mapping[str, Any]) -> JsonObject | None:
    """Return a part of AG-UI as a content block, None for the id of a provider's file."""
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
    if kind == "image":  # the one form that every model of LangChain supports
        is_data = source["type"] == "data"
        url = f"data:{mime_type};base64,{source['value']}" if is_data else source["value"]
        return {"type": "image_url", "image_url": {"url": url}}
    where = "base64" if source["type"] == "data" else "url"
    type = {"mime_type": mime_type} if mime_type else {}
    return {"type": _BLOCKS.get(kind, "file"), where: source["value"], **type}


def _decode_parts(content: Any) -> tuple[Part, ...]:
    """Return the parts of a content that is more than text."""
    if not isinstance(content, list):
        return ()
    parts = tuple(part for block in content if (part := _decode_part(block)) is not None)
    return parts if any(isinstance(part, MediaPart) for part in parts) else ()


def _decode_part(block: Any) -> Part | None:
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
