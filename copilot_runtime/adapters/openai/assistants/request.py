"""Builds request bodies of the Assistants API: create a thread, continue one, submit results."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
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
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.messages import ImageMessage, ResultMessage, TextMessage
from copilot_runtime.base.jsonvalue import JsonObject


@dataclass(frozen=True, slots=True)
class ThreadPosition:
    """The position of a conversation on the server: its thread and last run.

    `waiting` are the calls whose results that run waits for.
    """

    thread_id: str
    run_id: str = ""
    waiting: frozenset[str] = frozenset()

    @property
    def path(self) -> str:
        """The path of the last run."""
        return f"threads/{self.thread_id}/runs/{self.run_id}"


def build_request(
    request: ChatRequest,
    position: ThreadPosition | None,
    assistant: str,
    tools: Sequence[str],
    capabilities: CapabilityFilter,
) -> tuple[str, JsonObject]:
    """Return the path and the body that continue at `position`, or create a thread."""
    items = repair_history(request.messages)
    if position is not None and position.waiting:
        if outputs := _build_tool_outputs(request, items, position.waiting):
            return f"{position.path}/submit_tool_outputs", outputs
        position = None  # the person went on without the results: that thread waits in vain
    run = _build_run(request, items, assistant, tools, capabilities)
    texts = [item for item in items if _find_role(item) in ("user", "assistant")]
    latest = [*takewhile(lambda item: _find_role(item) == "user", reversed(texts))]
    if position is not None and latest:
        messages = _encode_messages(latest[::-1], capabilities)
        return f"threads/{position.thread_id}/runs", {**run, "additional_messages": messages}
    messages = _encode_messages(texts, capabilities)
    return "threads/runs", {**run, "thread": {"messages": messages}}


def _build_tool_outputs(
    request: ChatRequest, items: Sequence[HistoryItem], waiting: frozenset[str]
) -> JsonObject | None:
    """Return the body that submits the results of these calls, or `None` if one is missing."""
    returned = waiting & {one.call_id for one in request.messages if isinstance(one, ResultMessage)}
    outputs = [
        {"tool_call_id": item.call.id, "output": format_result(item.result)}
        for item in items
        if isinstance(item, ToolExchange) and item.call.id in returned
    ]
    return {"stream": True, "tool_outputs": outputs} if len(outputs) == len(waiting) else None


def _build_run(
    request: ChatRequest,
    items: Sequence[HistoryItem],
    assistant: str,
    built_ins: Sequence[str],
    capabilities: CapabilityFilter,
) -> JsonObject:
    """Return the fields of every run. A thread has no instructions, so they are among them."""
    texts = [item for item in items if isinstance(item, TextMessage)]
    instructions = [one.content for one in texts if one.role in ("system", "developer")]
    parameters = capabilities.apply(request.parameters)
    tools = build_tools(request.actions)
    body: JsonObject = {
        "assistant_id": assistant,
        "stream": True,
        "instructions": "\n\n".join(instructions) or None,
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


def _find_role(item: HistoryItem) -> str:
    return item.role if isinstance(item, TextMessage | ImageMessage) else "assistant"


def _encode_messages(
    items: Sequence[HistoryItem], capabilities: CapabilityFilter
) -> list[JsonObject]:
    """Return items as messages of a thread, which are only texts and addresses of images."""
    messages: list[JsonObject] = []
    turn = find_last_turn(items)
    for at, item in enumerate(items):
        role, content = _find_role(item), _encode_content(item, capabilities, new=at >= turn)
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
