"""Complete a log whose beginning was seen, out of the form in which the store has all of it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Activity,
    AgentState,
    Event,
    ReasoningContent,
    ReasoningEnd,
    ReasoningStart,
    RunStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)

_Key = tuple[str, str]
"""What kind of item it is, and its id."""


def find_rest(beginning: Sequence[Event], whole: Sequence[Event]) -> Sequence[Event]:
    """Return what a stored log has beyond the events that were seen.

    A stored log is shortened (`threads/compact.py`): each text is in one piece, and of a state only
    the last one is there. So texts are compared by their length, and all else by what it is.
    """
    return [*_Beginning(beginning).complete(whole)]


class _Beginning:
    """What was seen of a log."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._once: set[_Key] = set()
        """What there is once in a log: beginnings, ends and results."""
        self._lengths: defaultdict[_Key, int] = defaultdict(int)
        self._values: dict[_Key, Any] = {}
        """The last value of each state and activity."""
        self._others: list[Event] = []
        """All else, in order."""
        for event in events:
            self._note(event)

    def complete(self, whole: Iterable[Event]) -> Iterator[Event]:
        """Yield what is new."""
        others = iter(self._others)
        expected = next(others, None)
        for event in whole:
            if (key := _get_once_key(event)) is not None:
                if key not in self._once:
                    yield event
            elif (piece := _get_piece(event)) is not None:
                yield from self._complete_text(event, *piece)
            elif (value := _get_value(event)) is not None:
                if self._values.get(value[0]) != value[1]:
                    yield event
            elif expected is not None and event == expected:
                expected = next(others, None)
            else:
                yield event

    def _note(self, event: Event) -> None:
        if (key := _get_once_key(event)) is not None:
            self._once.add(key)
        elif (piece := _get_piece(event)) is not None:
            self._lengths[piece[0]] += len(piece[1])
        elif (value := _get_value(event)) is not None:
            self._values[value[0]] = value[1]
        else:
            self._others.append(event)

    def _complete_text(self, event: Event, key: _Key, text: str) -> Iterator[Event]:
        """Yield the part of a piece that was not seen."""
        start = min(self._lengths[key], len(text))
        self._lengths[key] -= start
        rest = text[start:]
        if not rest:
            return
        match event:
            case TextMessageContent():
                yield TextMessageContent(message_id=key[1], content=rest)
            case ActionExecutionArgs():
                yield ActionExecutionArgs(call_id=key[1], delta=rest)
            case _:
                yield ReasoningContent(message_id=key[1], content=rest)


def _get_once_key(event: Event) -> _Key | None:
    match event:
        case RunStarted():
            return event.type, ""
        case TextMessageStart(message_id=key) | TextMessageEnd(message_id=key):
            return event.type, key
        case ReasoningStart(message_id=key) | ReasoningEnd(message_id=key):
            return event.type, key
        case ActionExecutionStart(call_id=key) | ActionExecutionEnd(call_id=key):
            return event.type, key
        case ActionExecutionResult(call_id=key):
            return event.type, key
        case _:
            return None


def _get_piece(event: Event) -> tuple[_Key, str] | None:
    match event:
        case TextMessageContent(message_id=key, content=text):
            return ("text", key), text
        case ActionExecutionArgs(call_id=key, delta=text):
            return ("arguments", key), text
        case ReasoningContent(message_id=key, content=text):
            return ("reasoning", key), text
        case _:
            return None


def _get_value(event: Event) -> tuple[_Key, Any] | None:
    match event:
        case AgentState(agent=key):
            return ("state", key), event
        case Activity(message_id=key):
            return ("activity", key), event
        case _:
            return None
