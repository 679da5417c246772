"""Bodies of the Assistants API: begin a thread, go on in one, hand in what actions returned."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.history import (
    HistoryItem,
    Thought,
    ToolExchange,
    find_last_turn,
    format_result,
    repair_history,
)
from copilot_runtime.adapters.openai.content import build_content
from copilot_runtime.adapters.openai.request import build_response_format, build_tool_choice
from copilot_runtime.adapters.tools import build_tools
from copilot_runtime.interfaces import ChatRequest
from copilot_runtime.jsonvalue import JsonObject
from copilot_runtime.messages import ImageMessage, TextMessage


@dataclass(frozen=True, slots=True)
class ThreadPosition:
    """Where a conversation stands on the server: its thread, its last run.

    `waiting` are the calls whose results that run waits for.
    """

    thread_id: str
    run_id: str = ""
    waiting: frozenset[str] = frozenset()


def build_tool_outputs(request: ChatRequest, waiting: frozenset[str]) -> JsonObject | None:
    """Return the body that hands in the results of these calls, or None if one is missing."""
    exchanges = [
        item for item in repair_history(request.messages) if isinstance(item, ToolExchange)
    ]
    with_result = {message.call_id for message in request.messages if message.type == "result"}
    returned = [x for x in exchanges if x.call.id in waiting & with_result]
    if not waiting or len(returned) != len(waiting):
        return None
    outputs = [{"tool_call_id": x.call.id, "output": format_result(x.result)} for x in returned]
    return {"stream": True, "tool_outputs": outputs}


def build_next_run(
    request: ChatRequest, assistant: str, tools: Sequence[str], capabilities: CapabilityFilter
) -> JsonObject | None:
    """Return the body of a run with what the person latest last, or None if that was nothing."""
    latest: list[HistoryItem] = []
    for item in reversed(_select_texts(request)):
        if isinstance(item, ToolExchange) or _choose_role(item) != "user":
            break
        latest.insert(0, item)
    if not latest:
        return None
    return {
        **_run(request, assistant, tools, capabilities),
        "additional_messages": _encode_messages(latest, capabilities),
    }


def build_first_run(
    request: ChatRequest, assistant: str, tools: Sequence[str], capabilities: CapabilityFilter
) -> JsonObject:
    """Return the body of a run in a new thread that holds the whole conversation."""
    messages = _encode_messages(_select_texts(request), capabilities)
    return {**_run(request, assistant, tools, capabilities), "thread": {"messages": messages}}


def _run(
    request: ChatRequest, assistant: str, built_ins: Sequence[str], capabilities: CapabilityFilter
) -> JsonObject:
    parameters = capabilities.apply(request.parameters)
    tools = build_tools(request.actions)
    body: JsonObject = {
        "assistant_id": assistant,
        "stream": True,
        "instructions": _instructions(request) or None,
        "model": parameters.model or None,
        # these take the place of the assistant's own, so its built-in ones are named again
        "tools": [*tools, *({"type": name} for name in built_ins)] if tools else None,
        "tool_choice": build_tool_choice(parameters) if tools else None,
        "parallel_tool_calls": parameters.parallel_tool_calls if tools else None,
        "temperature": parameters.temperature,
        "top_p": parameters.top_p,
        "max_completion_tokens": parameters.max_tokens,
        "response_format": build_response_format(parameters),
    }
    return {name: value for name, value in body.items() if value is not None}


def _instructions(request: ChatRequest) -> str:
    """Return the instructions of the application; a thread has no messages of that kind."""
    texts = [i for i in repair_history(request.messages) if isinstance(i, TextMessage)]
    return "\n\n".join(i.content for i in texts if i.role in ("system", "developer"))


def _select_texts(request: ChatRequest) -> list[HistoryItem]:
    return [i for i in repair_history(request.messages) if _choose_role(i) in ("user", "assistant")]


def _choose_role(item: HistoryItem) -> str:
    return item.role if isinstance(item, TextMessage | ImageMessage) else "assistant"


def _encode_messages(
    items: Sequence[HistoryItem], capabilities: CapabilityFilter
) -> list[JsonObject]:
    """Return items as messages of a thread, which are only texts and addresses of images."""
    messages: list[JsonObject] = []
    turn = find_last_turn(items)
    for at, item in enumerate(items):
        role, content = _choose_role(item), _encode_content(item, capabilities, new=at >= turn)
        if content:
            messages.append({"role": role, "content": content})
    return messages


def _encode_content(
    item: HistoryItem, capabilities: CapabilityFilter, *, new: bool
) -> str | list[Any]:
    match item:
        case ToolExchange():
            # a new thread cannot hold calls; as a text, they show the model what it did
            return f"{item.call.name}({item.call.arguments}) → {format_result(item.result)}"
        case ImageMessage(bytes=url) if url.startswith(("http://", "https://")):
            return [{"type": "image_url", "image_url": {"url": url}}]
        case ImageMessage():
            if new and (why := capabilities.reason("images")):
                capabilities.omit("images", why)
            return ""
        case TextMessage():
            return build_content(item, capabilities, new=new)
        case Thought():
            return ""
        case _:
            assert_never(item)
