"""Give each text and thought of a conversation an id of its own.

Some agents have one id for the answers of all runs. A client finds a message by its id, and would
append the second answer to the first one.
"""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Literal

from copilot_runtime.api.events import (
    ActionExecutionStart,
    Event,
    Events,
    ReasoningContent,
    ReasoningEnd,
    ReasoningSignature,
    ReasoningStart,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.api.messages import Message, ReasoningMessage, TextMessage, collect_ids
from copilot_runtime.event_order.call_ids import find_free

STARTS = frozenset({ActionExecutionStart, ReasoningStart, TextMessageStart})
"""The types of the events that begin a message, or a call of one."""

_Text = TextMessageStart | TextMessageContent | TextMessageEnd
_Thought = ReasoningStart | ReasoningContent | ReasoningEnd
_Key = tuple[Literal["text", "thought"], str]


async def rename_used_ids(events: Events, messages: Sequence[Message]) -> Events:
    """Yield the events of a run with other ids for messages whose id the conversation has."""
    names = MessageIds(messages)
    async with aclosing(events):
        async for event in events:
            for renamed in names.rename(event):
                yield renamed


@dataclass(slots=True)
class _Repeat:
    """A message that may repeat an earlier one: the text of that, and the events so far."""

    text: str
    place: int = 0
    events: list[Event] = field(default_factory=list[Event])

    def goes_on(self, event: Event) -> bool:
        """Add an event. Return whether the message still is the beginning of the earlier one."""
        self.events.append(event)
        match event:
            case TextMessageContent(content=piece) | ReasoningContent(content=piece):
                start, self.place = self.place, self.place + len(piece)
                return self.text.startswith(piece, start)
            case TextMessageEnd() | ReasoningEnd():
                return self.place == len(self.text)
            case _:
                return True


class MessageIds:
    """Renames the messages of a run whose ids are in use: the second `msg-1` becomes `msg-1-2`.

    `messages` are the conversation before the run. An agent that continues after the result of a
    call may send its earlier messages again, to bring its client up to date. Such a message has the
    same text, and is left out; with `keeps_repeats` it keeps its id, as Node has it for v1.
    """

    def __init__(self, messages: Sequence[Message], *, keeps_repeats: bool = False) -> None:
        self._used = collect_ids(messages)
        self._messages = messages
        self._keeps_repeats = keeps_repeats
        self._names: dict[_Key, str] = {}
        self._repeats: dict[_Key, _Repeat] = {}

    def has(self, event: Event) -> bool:
        """Return whether an event of `STARTS` is of a message whose id is in use."""
        match event:
            case TextMessageStart(message_id=id) | ReasoningStart(message_id=id):
                return id in self._used
            case ActionExecutionStart(parent_id=id):
                return id in self._used
            case _:
                return False

    def rename(self, event: Event) -> Sequence[Event]:
        """Return an event with the name of its message, after those that were held back."""
        match event:
            case TextMessageStart() | TextMessageContent() | TextMessageEnd():
                return self._follow(("text", event.message_id), event)
            case ReasoningStart() | ReasoningContent() | ReasoningEnd():
                return self._follow(("thought", event.message_id), event)
            case ActionExecutionStart(parent_id=str(id)) if id in self._used:
                return [replace(event, parent_id=self._find_name(("text", id)))]
            case ReasoningSignature(entity_id=id, of="message"):
                keys: tuple[_Key, _Key] = ("thought", id), ("text", id)
                for key in keys:
                    if key in self._names or key in self._repeats:
                        return self._follow(key, event)
                return [event]
            case _:
                return [event]

    def _follow(self, key: _Key, event: _Text | _Thought | ReasoningSignature) -> Sequence[Event]:
        is_start = isinstance(event, TextMessageStart | ReasoningStart)
        if is_start and key not in self._names and (text := self._find_text(key)) is not None:
            if self._keeps_repeats:
                self._names[key] = key[1]
            else:
                self._repeats[key] = _Repeat(text)
        repeat = self._repeats.get(key)
        if repeat is None:
            return [self._name(key, event)]
        is_same, is_over = repeat.goes_on(event), isinstance(event, TextMessageEnd | ReasoningEnd)
        if is_over or not is_same:
            del self._repeats[key]
        return () if is_same else [self._name(key, one) for one in repeat.events]

    def _name(self, key: _Key, event: Event) -> Event:
        name = self._find_name(key)
        if name == key[1]:
            return event
        field = "entity_id" if isinstance(event, ReasoningSignature) else "message_id"
        return replace(event, **{field: name})

    def _find_name(self, key: _Key) -> str:
        id = key[1]
        if key not in self._names and id in self._used:
            self._names[key] = find_free(id, self._used)
            self._used.add(self._names[key])
        return self._names.get(key, id)

    def _find_text(self, key: _Key) -> str | None:
        """Return the text of a message since the last question, or of the question, or None."""
        for message in reversed(self._messages):
            kind = "thought" if isinstance(message, ReasoningMessage) else "text"
            if isinstance(message, TextMessage | ReasoningMessage) and (kind, message.id) == key:
                return message.content
            if isinstance(message, TextMessage) and message.role == "user":
                return None
        return None
