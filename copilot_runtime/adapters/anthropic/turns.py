"""Calls, results and thoughts as blocks of Anthropic's Messages API.

Calls of one answer are in one turn, and all their results in the next one, first of all. What
failed may hold texts only, so a result with images is no failure.
"""

import re
from collections.abc import Sequence

from copilot_runtime.adapters.anthropic.content import build_blocks
from copilot_runtime.adapters.attachments import parse_result_blocks
from copilot_runtime.adapters.history import HistoryItem, Thought, ToolExchange, format_result
from copilot_runtime.adapters.turns import Turns, build_turns
from copilot_runtime.jsontext import loads
from copilot_runtime.jsonvalue import JsonObject
from copilot_runtime.messages import Message

REDACTED = "redacted/"
"""How the signature of a thought begins that nobody may read."""

_ID = re.compile(r"[^a-zA-Z0-9_-]")


def build_anthropic_turns(messages: Sequence[Message], items: Sequence[HistoryItem]) -> Turns:
    """Return the turns of a prepared conversation, which was made of `messages`."""
    return build_turns(
        messages,
        items,
        encode_message=build_blocks,
        encode_exchange=_encode_exchange,
        encode_thought=_encode_thought,
    )


def is_thought(block: JsonObject) -> bool:
    """Return whether a block is a thought."""
    return block.get("type") in ("thinking", "redacted_thinking")


def is_result(block: JsonObject) -> bool:
    """Return whether a block is what came of a call."""
    return block.get("type") == "tool_result"


def _encode_exchange(exchange: ToolExchange, *, first: bool) -> tuple[JsonObject, JsonObject]:
    del first
    call, result = exchange.call, exchange.result
    id = _ID.sub("_", call.id)  # other providers write ids with other characters
    arguments = loads(call.arguments.encode())
    content = parse_result_blocks(format_result(result))
    failed = {"is_error": True} if result.error and isinstance(content, str) else {}
    return (
        {"type": "tool_use", "id": id, "name": call.name, "input": arguments},
        {"type": "tool_result", "tool_use_id": id, "content": content, **failed},
    )


def _encode_thought(thought: Thought) -> JsonObject:
    if thought.signature.startswith(REDACTED):
        return {"type": "redacted_thinking", "data": thought.signature.removeprefix(REDACTED)}
    return {"type": "thinking", "thinking": thought.content, "signature": thought.signature}
