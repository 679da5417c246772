"""Assembles the chunks of a response into start, content and end events, for all adapters.

A provider's chunk is "some text" or "some arguments of call 1"; this module derives where messages
and calls start and end. One text or reasoning is open at a time; calls may interleave.
"""

from collections.abc import Mapping
from typing import Any, Literal

from copilot_runtime.adapters.added_fields import AFTER, ANSWER, encode_fields
from copilot_runtime.adapters.tool_calls import (
    PARALLEL_CALLS,
    ToolCallBuffer,
    expand_calls,
    is_readable,
)
from copilot_runtime.adapters.tools import encode_tool_name
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionStart,
    Event,
    ReasoningContent,
    ReasoningEnd,
    ReasoningSignature,
    ReasoningStart,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.api.messages import collect_ids, new_id
from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.base.jsontext import join_pieces

MAX_CALLS = 256
"""Maximum number of calls in one answer: each runs in a task, many of them also in a thread."""


def build_limit_error() -> LimitExceeded:
    """Return the error for an answer with more than `MAX_CALLS`."""
    return LimitExceeded(
        f"One answer calls more than {MAX_CALLS} actions.",
        hint="The model or agent repeats itself, or should do such work in one action.",
    )


class Assembly:
    """The events of one response. Its methods append to `events`, which the caller empties.

    The answer's id is that of the request, or else the provider's. An id that the conversation of
    the request already uses is replaced: some servers number their answers and calls from zero each
    time, and a browser treats messages with equal ids as the same message.
    A call of an action of the request starts as soon as its name is complete.
    Fields that the service adds are for `origin` (`added_fields`); without one, they are left out.
    """

    def __init__(self, request: ChatRequest, origin: str = "") -> None:
        self.events: list[Event] = []
        self.answer_id = self._given_id = request.message_id
        self.response_id = ""
        """The provider's own id of the response."""
        self._names = {encode_tool_name(action.name): action.name for action in request.actions}
        self._origin = origin
        self._messages = request.messages
        self._request_ids: set[str] | None = None
        self._numbers: dict[str, int] = {}
        """The last suffix that made an id unique, so that thousands of texts need no new search."""
        self._used: set[str] = set()
        self._text: str | None = None
        self._texts: list[str] = []
        self._last_part = ""
        """The id of the latest text or call."""
        self._reasoning: str | None = None
        self._calls: dict[int, ToolCallBuffer] = {}  # by the provider's index
        self._latest: ToolCallBuffer | None = None
        self._first_call: ToolCallBuffer | None = None

    @property
    def is_thinking(self) -> bool:
        """Whether reasoning is open."""
        return self._reasoning is not None

    def begin(self, answer_id: str) -> None:
        """Set the answer's id to the provider's before the first chunk, if it has none yet."""
        self.response_id = answer_id
        if self._given_id:
            return
        self.answer_id = new_id() if not answer_id or self._is_taken(answer_id) else answer_id

    def text(self, content: str) -> None:
        """Add a piece of text."""
        if self._text is None:
            self._end_reasoning()
            self._end_whole_calls()
            self._text = self._message_id("")
            self._texts.append(self._text)
            self._last_part = self._text
            self.events.append(TextMessageStart(message_id=self._text))
        self.events.append(TextMessageContent(message_id=self._text, content=content))

    def reasoning(self, content: str) -> None:
        """Add a chunk of the model's reasoning."""
        thought = self._reasoning or self._begin_reasoning()
        self.events.append(ReasoningContent(message_id=thought, content=content))

    def add_thought_fields(self, fields: Mapping[str, Any]) -> None:
        """Add fields of the service to the open reasoning, or to a new one without text."""
        thought = self._reasoning or self._begin_reasoning()
        if self._last_part:
            fields = {**fields, AFTER: self._last_part}
        self._add_fields(thought, fields)

    def add_text_fields(self, fields: Mapping[str, Any]) -> None:
        """Add fields of the service to the latest text, if there is one."""
        if self._texts:
            self._add_fields(self._texts[-1], fields)

    def add_answer_fields(self, fields: Mapping[str, Any]) -> None:
        """Add fields of the service to the whole answer: they go with its first call or text."""
        if self._first_call is not None:
            self._first_call.answer_fields = fields
            self._add_call_fields(self._first_call)
        elif self._texts:
            self._add_fields(self._texts[0], {ANSWER: fields})

    def end_block(self) -> None:
        """End the open text or reasoning: the next chunk starts a new one."""
        self._end_text()
        self._end_reasoning()

    def end_call(self, index: int) -> None:
        """End the call with this index: the provider has marked it as complete.

        Providers also mark a call in which a limit has cut off the answer. So a call without
        complete arguments ends when another item begins, or with the answer.
        """
        if (call := self._calls.get(index)) is not None:
            call.closed = True
            if call.is_complete():
                self._end_call(call)

    def call(
        self,
        index: int | None,
        call_id: str,
        name: str,
        arguments: str,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a chunk of a call; later chunks may lack everything but `arguments`.

        Without an index, a chunk with a new id or a name starts another call. `fields` are those
        that the service adds to the call.
        """
        call = self._find(index, call_id, name)
        if fields:
            call.fields.add(fields)
            if call.ended and call.started:
                self._add_call_fields(call)
        if call.ended:
            return  # its arguments were whole: this repeats them, or is white space
        if arguments:
            call.arguments.append(arguments)
        if call.started:
            if arguments:
                self.events.append(ActionExecutionArgs(call_id=call.id, delta=arguments))
            return
        call.add_name(name)
        call.id = call.id or call_id
        if (
            call.name
            and (call.arguments or self._is_whole(call.name))
            and not self._has_inner_calls(call)
        ):
            self._start(call)

    def end(self, *, is_cut: bool = False) -> None:
        """End all open messages and calls: the model has finished.

        If a limit has cut off the answer, a call without complete arguments gets no end.
        """
        self._end_text()
        self._end_reasoning()
        for call in self._calls.values():
            if is_cut and self._is_cut(call):
                self._leave_open(call)
            else:
                self._end_call(call)
        self._calls.clear()

    def _begin_reasoning(self) -> str:
        self._end_text()
        self._end_whole_calls()
        self._reasoning = self._message_id("-reasoning")
        self.events.append(ReasoningStart(message_id=self._reasoning))
        return self._reasoning

    def _find(self, index: int | None, call_id: str, name: str) -> "ToolCallBuffer":
        call = self._find_open(call_id, name) if index is None else self._calls.get(index)
        if call is not None and name and call.is_another(call_id):
            call = None
        if call is None:
            self._end_text()
            self._end_reasoning()
            self._end_whole_calls()
            call = ToolCallBuffer(provider_id=call_id)
            self._calls[self._free(index)] = call
            if len(self._calls) > MAX_CALLS:  # each new one looks at all others
                raise build_limit_error()
        elif not call.provider_id:
            call.provider_id = call_id
        self._latest = call
        return call

    def _find_open(self, call_id: str, name: str) -> "ToolCallBuffer | None":
        if call_id:
            return next((c for c in self._calls.values() if c.provider_id == call_id), None)
        return None if name else self._latest

    def _free(self, index: int | None) -> int:
        """Return the index of a new call. A call that used it moves to a negative index."""
        if index is None:
            return max(self._calls, default=-1) + 1
        if previous := self._calls.pop(index, None):
            self._calls[-len(self._calls) - 1] = previous
        return index

    def _is_whole(self, name: str) -> bool:
        """Return `True` if the name is complete: no other action's name starts with it."""
        return name in self._names and not any(
            other != name and other.startswith(name) for other in self._names
        )

    def _start(self, call: "ToolCallBuffer") -> None:
        if not call.id or call.id in self._used or self._is_taken(call.id):
            call.id = new_id()
        self._used.add(call.id)
        call.started = True
        self._first_call = self._first_call or call
        self._last_part = call.id
        self.events.append(
            ActionExecutionStart(
                call_id=call.id,
                name=self._names.get(call.name, call.name),
                parent_id=self.answer_id or None,
            )
        )
        if call.arguments:
            early = call.arguments[0] if len(call.arguments) == 1 else join_pieces(call.arguments)
            self.events.append(ActionExecutionArgs(call_id=call.id, delta=early))

    def _end_whole_calls(self) -> None:
        """End the calls whose arguments are complete, so that their actions can start."""
        for call in self._calls.values():
            if call.closed or call.is_complete():
                self._end_call(call)

    def _is_cut(self, call: "ToolCallBuffer") -> bool:
        """Return whether an answer that was cut off ends within this call.

        Only the last call may lack its arguments for that reason; others have none.
        """
        arguments = "".join(call.arguments)
        is_last_without_any = call is self._latest and not arguments.strip()
        return not call.ended and (is_last_without_any or not is_readable(arguments))

    def _leave_open(self, call: "ToolCallBuffer") -> None:
        if call.name and not call.started:
            self._start(call)
        if call.started:
            self._add_call_fields(call)

    def _end_call(self, call: "ToolCallBuffer") -> None:
        if call.ended or not call.name:
            return
        call.ended = True
        if not call.started:
            if self._has_inner_calls(call) and self._start_inner_calls(call):
                return
            self._start(call)
        self._add_call_fields(call)
        self.events.append(ActionExecutionEnd(call_id=call.id))

    def _has_inner_calls(self, call: "ToolCallBuffer") -> bool:
        """Return `True` for a `multi_tool_use.parallel` wrapper around other calls."""
        return call.name in PARALLEL_CALLS and call.name not in self._names

    def _start_inner_calls(self, call: "ToolCallBuffer") -> bool:
        """Add the calls inside a wrapper. Return whether it contains any."""
        inner_calls = expand_calls(call.id or new_id(), join_pieces(call.arguments))
        if len(inner_calls) > MAX_CALLS:
            raise build_limit_error()
        for one in inner_calls:
            self._start(one)
            self.events.append(ActionExecutionEnd(call_id=one.id))
        return bool(inner_calls)

    def _add_call_fields(self, call: "ToolCallBuffer") -> None:
        """Add what the service wants back with a call, if it differs from what all calls have."""
        if (fields := call.added_fields()) is not None:
            self._add_fields(call.id, fields, "call")

    def _add_fields(
        self, id: str, fields: Mapping[str, Any], of: Literal["message", "call"] = "message"
    ) -> None:
        if self._origin and (value := encode_fields(self._origin, fields)):
            self.events.append(ReasoningSignature(entity_id=id, value=value, of=of))

    def _end_text(self) -> None:
        if self._text is not None:
            self.events.append(TextMessageEnd(message_id=self._text))
            self._text = None

    def _end_reasoning(self) -> None:
        if self._reasoning is not None:
            self.events.append(ReasoningEnd(message_id=self._reasoning))
            self._reasoning = None

    def _is_taken(self, id: str) -> bool:
        """Return whether the conversation of the request uses an id."""
        if self._request_ids is None:
            self._request_ids = collect_ids(self._messages)
        return id in self._request_ids

    def _message_id(self, suffix: str) -> str:
        """Return the answer's id, with a numeric suffix if a message already has it."""
        self.answer_id = self.answer_id or new_id()
        base = new = self.answer_id + suffix
        number = self._numbers.get(base, 1)
        while new in self._used:
            number += 1
            new = f"{base}-{number}"
        self._used.add(new)
        self._numbers[base] = number
        return new
