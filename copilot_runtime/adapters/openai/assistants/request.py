"""Bodies of the Assistants API: begin a thread, go on in one, hand in what actions returned."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.history import (
    HistoryItem,
    Thought,
    ToolExchange,
    find_last_turn,
    repair_history,
)
from copilot_runtime.adapters.openai.content import content_of
from copilot_runtime.adapters.openai.request import (
    image_url_of,
    result_of,
    schema_of,
)
from copilot_runtime.adapters.tools import build_tools, required_tool
from copilot_runtime.interfaces import ChatRequest, Parameters
from copilot_runtime.jsonvalue import JsonObject
from copilot_runtime.messages import ImageMessage, TextMessage


@dataclass(frozen=True, slots=True)
class Place:
    """Where a conversation stands on the server: its thread, its last run.

    `waiting` are the calls whose results that run waits for.
    """

    thread_id: str
    run_id: str = ""
    waiting: frozenset[str] = frozenset()


def outputs_for(request: ChatRequest, waiting: Collection[str]) -> JsonObject | None:
    """Return the body that hands in the results of these calls, or None if one is missing."""
    exchanges = [
        item for item in repair_history(request.messages) if isinstance(item, ToolExchange)
    ]
    given = {message.call_id for message in request.messages if message.type == "result"}
    found = [x for x in exchanges if x.call.id in waiting and x.call.id in given]
    if not waiting or len(found) != len(waiting):
        return None
    outputs = [{"tool_call_id": x.call.id, "output": result_of(x)} for x in found]
    return {"stream": True, "tool_outputs": outputs}


def continuation_of(
    request: ChatRequest, assistant: str, tools: Sequence[str], capabilities: CapabilityFilter
) -> JsonObject | None:
    """Return the body of a run with what the person said last, or None if that was nothing."""
    said: list[HistoryItem] = []
    for item in reversed(_spoken(request)):
        if isinstance(item, ToolExchange) or _role(item) != "user":
            break
        said.insert(0, item)
    if not said:
        return None
    return {
        **_run(request, assistant, tools, capabilities),
        "additional_messages": _messages(said, capabilities),
    }


def beginning_of(
    request: ChatRequest, assistant: str, tools: Sequence[str], capabilities: CapabilityFilter
) -> JsonObject:
    """Return the body of a run in a new thread that holds the whole conversation."""
    messages = _messages(_spoken(request), capabilities)
    return {**_run(request, assistant, tools, capabilities), "thread": {"messages": messages}}


def _run(
    request: ChatRequest, assistant: str, built_in: Sequence[str], capabilities: CapabilityFilter
) -> JsonObject:
    wishes = capabilities.apply(request.parameters)
    body: JsonObject = {"assistant_id": assistant, "stream": True}
    if instructions := _instructions(request):
        body["instructions"] = instructions
    if request.parameters.model:
        body["model"] = request.parameters.model
    if tools := build_tools(request.actions):
        # these take the place of the assistant's own, so its built-in ones are named again
        body["tools"] = [*tools, *({"type": name} for name in built_in)]
        body |= _choice(wishes)
    plain = {
        "temperature": wishes.temperature,
        "top_p": wishes.top_p,
        "max_completion_tokens": wishes.max_tokens,
    }
    body |= {name: value for name, value in plain.items() if value is not None}
    if wishes.response_schema is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": schema_of(wishes)}
    return body


def _choice(wishes: Parameters) -> JsonObject:
    body: JsonObject = {}
    if wishes.parallel_tool_calls is not None:
        body["parallel_tool_calls"] = wishes.parallel_tool_calls
    if wishes.tool_choice == "function":
        function = {"name": required_tool(wishes)}
        body["tool_choice"] = {"type": "function", "function": function}
    elif wishes.tool_choice is not None:
        body["tool_choice"] = wishes.tool_choice
    return body


def _instructions(request: ChatRequest) -> str:
    """Return what the application tells the model; a thread has no messages of that kind."""
    texts = [i for i in repair_history(request.messages) if isinstance(i, TextMessage)]
    return "\n\n".join(i.content for i in texts if i.role in ("system", "developer"))


def _spoken(request: ChatRequest) -> list[HistoryItem]:
    return [i for i in repair_history(request.messages) if _role(i) in ("user", "assistant")]


def _role(item: HistoryItem) -> str:
    return item.role if isinstance(item, TextMessage | ImageMessage) else "assistant"


def _messages(items: Sequence[HistoryItem], capabilities: CapabilityFilter) -> list[JsonObject]:
    """Return items as messages of a thread, which are only texts and addresses of images."""
    messages: list[JsonObject] = []
    turn = find_last_turn(items)
    for at, item in enumerate(items):
        role, content = _role(item), _content(item, capabilities, new=at >= turn)
        if content:
            messages.append({"role": role, "content": content})
    return messages


def _content(item: HistoryItem, capabilities: CapabilityFilter, *, new: bool) -> str | list[Any]:
    match item:
        case ToolExchange():
            # a new thread cannot hold calls; told as a text, the model knows what it did
            return f"{item.call.name}({item.call.arguments}) → {result_of(item)}"
        case ImageMessage():
            url = image_url_of(item)
            if url.startswith("data:"):
                if new and (why := capabilities.reason("images")):
                    capabilities.omit("images", why)
                return ""
            return [{"type": "image_url", "image_url": {"url": url}}]
        case TextMessage():
            return content_of(item, capabilities, new=new)
        case Thought():
            return ""  # not asked for
        case _:
            assert_never(item)
