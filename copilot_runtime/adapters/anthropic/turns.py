"""Conversations as turns of Anthropic's Messages API.

- Instructions go into `system`, wherever they stand; only those after the last word of the model
  become the last word of the user.
- Turns alternate; the first and the last one are the user's.
- Calls of one answer are in one turn, and all their results in the next one, first of all. What
  failed may hold texts only, so a result with images is no failure.
- ThinkingOptions stand before what they led to; thoughts that led to nothing are left out.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from copilot_runtime.adapters.anthropic.content import build_blocks, parse_result_blocks
from copilot_runtime.adapters.history import HistoryItem, Thought, ToolExchange, find_last_turn
from copilot_runtime.adapters.turns import BEGIN, GO_ON, group_calls
from copilot_runtime.jsontext import loads
from copilot_runtime.jsonvalue import JsonObject
from copilot_runtime.messages import (
    ActionExecutionMessage,
    ImageMessage,
    Message,
    TextMessage,
)

REDACTED = "redacted/"
"""How the signature of a thought begins that nobody may read."""

_ID = re.compile(r"[^a-zA-Z0-9_-]")


@dataclass(slots=True)
class Turns:
    """`system` and `messages` of a request."""

    system: list[JsonObject] = field(default_factory=list[JsonObject])
    messages: list[JsonObject] = field(default_factory=list[JsonObject])
    called: list[str] = field(default_factory=list[str])
    """The names of the tools that were called."""
    last_stable: JsonObject | None = None
    """The last block that will be there next time too, if there is one."""

    @property
    def has_thoughts(self) -> bool:
        """Whether there is a thought in any turn."""
        return any(_is_thought(block) for turn in self.messages for block in turn["content"])

    @property
    def goes_on_without_thought(self) -> bool:
        """Whether the model goes on after calls, in a turn that began without a thought."""
        at = len(self.messages)
        while at and self.messages[at - 1]["content"][0]["type"] == "tool_result":
            at -= 2
        return 0 <= at < len(self.messages) - 1 and not _is_thought(self.messages[at]["content"][0])

    def leave_out_thoughts(self) -> None:
        """Leave out all thoughts; what they led to stays."""
        for turn in self.messages:
            turn["content"] = [block for block in turn["content"] if not _is_thought(block)]

    def add(self, role: str, *blocks: JsonObject) -> None:
        """Add blocks to the last turn if it is of that role, else begin one."""
        if not blocks:
            return
        if self.messages and self.messages[-1]["role"] == role:
            self.messages[-1]["content"] += blocks
        else:
            if not self.messages and role == "assistant":
                self.messages.append({"role": "user", "content": [_text(BEGIN)]})
            self.messages.append({"role": role, "content": [*blocks]})


def build_turns(items: Sequence[HistoryItem], messages: Sequence[Message]) -> Turns:
    """Return the turns of a prepared conversation, which was made of `messages`."""
    turns = Turns()
    answers = group_calls(messages)
    turn = find_last_turn(items)
    thoughts: list[JsonObject] = []
    open_calls: list[ToolExchange] = []
    closing: list[TextMessage] = []
    for at, item in enumerate(items):
        if isinstance(item, Thought):
            thoughts.append(_thought(item))
            continue
        if open_calls and not _together(open_calls[-1], item, answers):
            _close(turns, open_calls)
        match item:
            case TextMessage(role="system" | "developer"):
                closing.append(item)
                continue
            case TextMessage(role="user"):
                turns.add("user", *build_blocks(item, new=at >= turn))
            case TextMessage():
                turns.add("assistant", *thoughts, *build_blocks(item, new=False))
            case ImageMessage():
                turns.add("user", *build_blocks(item, new=at >= turn))
            case ToolExchange():
                turns.add("assistant", *thoughts, _call(item.call))
                open_calls.append(item)
                if item.call.name not in turns.called:
                    turns.called.append(item.call.name)
        thoughts = []
        turns.system += [_text(one.content) for one in closing]
        closing = []
    _close(turns, open_calls)
    _end(turns, closing)
    return turns


def _end(turns: Turns, closing: list[TextMessage]) -> None:
    """Let the user have the last word; remember what will be there next time."""
    after_model = bool(turns.messages) and turns.messages[-1]["role"] == "assistant"
    turns.last_stable = _markable(turns.messages)
    if closing and after_model:
        turns.add("user", *(_text(one.content) for one in closing))
    else:
        turns.system += [_text(one.content) for one in closing]
    if not turns.messages or turns.messages[-1]["role"] == "assistant":
        turns.messages.append({"role": "user", "content": [_text(GO_ON)]})


def _together(before: ToolExchange, item: HistoryItem, answers: Mapping[str, str]) -> bool:
    return isinstance(item, ToolExchange) and answers[before.call.id] == answers[item.call.id]


def _close(turns: Turns, open_calls: list[ToolExchange]) -> None:
    turns.add("user", *map(_result, open_calls))
    open_calls.clear()


def _call(call: ActionExecutionMessage) -> JsonObject:
    arguments = loads(call.arguments.encode())
    return {"type": "tool_use", "id": _id(call.id), "name": call.name, "input": arguments}


def _result(exchange: ToolExchange) -> JsonObject:
    result = exchange.result
    content = parse_result_blocks(
        result.result or (f"Error: {result.error}" if result.error else "")
    )
    failed = {"is_error": True} if result.error and isinstance(content, str) else {}
    return {
        "type": "tool_result",
        "tool_use_id": _id(exchange.call.id),
        "content": content,
        **failed,
    }


def _thought(thought: Thought) -> JsonObject:
    if thought.signature.startswith(REDACTED):
        return {"type": "redacted_thinking", "data": thought.signature.removeprefix(REDACTED)}
    return {"type": "thinking", "thinking": thought.content, "signature": thought.signature}


def _is_thought(block: JsonObject) -> bool:
    return block["type"] in ("thinking", "redacted_thinking")


def _markable(messages: list[JsonObject]) -> JsonObject | None:
    """Return the last block that can bear a mark; thoughts cannot."""
    for block in reversed(messages[-1]["content"] if messages else []):
        if not _is_thought(block):
            return block
    return None


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _id(call_id: str) -> str:
    """Return an id the API takes; other providers write them with other characters."""
    return _ID.sub("_", call_id)
