"""Puts an answer of the model together again, as the message that its service sent.

A service that adds fields to a message wants that message back: its thoughts, its text and all its
calls in one, with the fields where they were.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from copilot_runtime.adapters.added_fields import ANSWER, read_fields
from copilot_runtime.adapters.history import Thought, ToolExchange
from copilot_runtime.adapters.turns import group_calls
from copilot_runtime.api.messages import Message, TextMessage
from copilot_runtime.base.jsonvalue import JsonObject, as_object

THOUGHTS = ("reasoning_content", "reasoning")
"""The fields in which services send reasoning, all of them as text."""
NAMES = "$names"
"""Those of `THOUGHTS` that had the text of a thought."""

_STANDARD = ("content", "role", "tool_call_id", "tool_calls")


@dataclass(slots=True)
class Answer:
    """The parts of one answer so far. `plain` has its messages if the service has added nothing."""

    key: str | None = None
    """Its id, once an item has named it."""
    texts: list[str] = field(default_factory=list[str])
    calls: list[JsonObject] = field(default_factory=list[JsonObject])
    results: list[JsonObject] = field(default_factory=list[JsonObject])
    images: list[JsonObject] = field(default_factory=list[JsonObject])
    plain: list[JsonObject] = field(default_factory=list[JsonObject])
    fields: JsonObject = field(default_factory=JsonObject)
    has_fields: bool = False

    def add_fields(self, fields: Mapping[str, Any] | None) -> None:
        """Add the fields of the whole answer that are on one of its items."""
        if fields and (values := as_object(fields.get(ANSWER))):
            self.has_fields = True
            self.fields |= {name: values[name] for name in values if name not in _STANDARD}

    def build_messages(self) -> list[JsonObject]:
        """Return the messages: one, and the results, if the service has added fields."""
        if not self.has_fields:
            return self.plain
        if not (self.texts or self.calls):  # thoughts that led to nothing
            return []
        message = {**self.fields, "role": "assistant", "content": "".join(self.texts) or None}
        if self.calls:
            message["tool_calls"] = self.calls
        return [message, *self.results, *self.images]


class Answers:
    """A builder: add the items of a conversation in order, then call `finish` for the messages.

    An answer without fields of the service is written as all answers are: its text, and each call
    right before its result.
    """

    def __init__(self, messages: Sequence[Message], origin: str) -> None:
        self._origin = origin
        self._conversation = messages
        self._answers: Mapping[str, str] | None = None
        """The answer of each call; `None` until one is added."""
        self._messages: list[JsonObject] = []
        self._open: Answer | None = None

    def add(self, message: JsonObject) -> None:
        """Add a message that is not the model's."""
        if self._open is not None:
            self._end_answer()
        self._messages.append(message)

    def think(self, thought: Thought) -> None:
        """Add reasoning: to the open answer if it was a part of it, else to the next one."""
        answer = self._open
        if answer is None or not (
            answer.key is None or thought.id.startswith(f"{answer.key}-reasoning")
        ):
            answer = self._begin_answer(None)
        names = thought.fields.get(NAMES)
        for name in names if isinstance(names, list) else ():
            if name in THOUGHTS:
                answer.fields[name] = answer.fields.get(name, "") + thought.content
        answer.has_fields = True

    def say(self, message: TextMessage) -> None:
        """Add a text of the model."""
        answer = self._find_answer(message.id)
        answer.texts.append(message.content)
        answer.plain.append({"role": "assistant", "content": message.content})
        if message.extra:
            answer.add_fields(read_fields(message, self._origin))

    def call(self, exchange: ToolExchange, call: JsonObject, result: list[JsonObject]) -> None:
        """Add a call, as an item of `tool_calls`, and the messages of its result.

        After several calls in one message, the images of all results follow the last result.
        """
        if self._answers is None:
            self._answers = group_calls(self._conversation)
        answer = self._find_answer(self._answers.get(exchange.call.id, exchange.call.id))
        if fields := exchange.own_fields:
            function = {**as_object(fields.get("function")), **call["function"]}
            call = {**fields, **call, "function": function}
            answer.has_fields = True
        answer.calls.append(call)
        answer.results.append(result[0])
        answer.images += result[1:]
        answer.plain.append({"role": "assistant", "tool_calls": [call], "content": None})
        answer.plain += result
        answer.add_fields(exchange.fields)

    def finish(self) -> list[JsonObject]:
        """Return the messages."""
        if self._open is not None:
            self._end_answer()
        return self._messages

    def _find_answer(self, id: str) -> Answer:
        """Return the answer to which an item with this id of a message belongs."""
        answer = self._open
        if answer is None:
            return self._begin_answer(id)
        if answer.key is None:
            answer.key = id
        elif id != answer.key and not id.startswith(f"{answer.key}-"):
            return self._begin_answer(id)
        return answer

    def _begin_answer(self, key: str | None) -> Answer:
        self._end_answer()
        self._open = answer = Answer(key)
        return answer

    def _end_answer(self) -> None:
        if self._open is not None:
            self._messages += self._open.build_messages()
            self._open = None
