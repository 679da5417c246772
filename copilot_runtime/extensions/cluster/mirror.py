"""A local copy of the log of a run that another process executes."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextvars import Context
from typing import Any
from weakref import WeakSet

from copilot_runtime.api.bus import Batch, Cursor
from copilot_runtime.api.events import (
    LAST,
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
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.threads.compact import INTERRUPTED
from copilot_runtime.threads.run_log import MemoryBus
from copilot_runtime.threads.store import ThreadKey


class Mirror:
    """A copy of a log, which any number of readers in this process follow.

    `thread` and `server` name the run's thread and the process that executes it.
    """

    def __init__(self, bus: MemoryBus, thread: ThreadKey, server: str, log_id: str) -> None:
        self.thread = thread
        self.server = server
        self.log_id = log_id
        self.position = 0
        """Number of events of the original log that this copy has."""
        self.is_complete = False
        """True if the copy has the last event."""
        self.is_missing = False
        """True if the other process has no such log."""
        self.readers: WeakSet[AsyncGenerator[Batch, None]] = WeakSet()
        """Open readers, including those that have not read anything yet."""
        self.found: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Resolves to True or False once the other process has confirmed or denied that the log
        exists."""
        self._id = f"{server}:{log_id}"
        self._bus = bus
        self._ending: asyncio.Task[None] | None = None

    def add(self, position: int, after: int, events: Sequence[Event]) -> bool:
        """Add the events of a range (`position` to `after`) that the copy does not have yet.

        Returns False if events before the range are missing.
        """
        if position > self.position:
            return False
        new = events[self.position - position :]
        if new and not self.is_complete:
            self._append(new)
        self.position = max(self.position, after)
        self._settle(True)
        return True

    def end(self, whole: Sequence[Event]) -> None:
        """End the log of a process that died, with the stored events that this copy lacks."""
        if self.is_complete:
            return
        rest = find_rest(self._bus.list_events(self._id), whole)
        self._append(rest if rest and isinstance(rest[-1], LAST) else [*rest, INTERRUPTED])
        self._settle(True)

    def refuse(self) -> None:
        """Record that the other process has no such log."""
        self.is_missing = True
        self._settle(False)

    def read(self, after: Cursor) -> AsyncGenerator[Batch, None]:
        """Follow the log from a cursor to its end. Cursors of the original log are valid here."""
        log = self._bus.read(self._id, after)
        self.readers.add(log)
        return log

    async def drop(self) -> None:
        """Delete the copy."""
        await self._bus.drop(self._id)

    def _append(self, events: Sequence[Event]) -> None:
        """Add events. If the copy exceeds the size limit, end it, although the original goes on."""
        try:
            self._bus.append_all(self._id, events)
        except CopilotError:
            self.is_complete = True
            self._ending = asyncio.create_task(
                self._bus.append(self._id, INTERRUPTED), context=Context()
            )
        self.is_complete |= isinstance(events[-1], LAST)

    def _settle(self, is_found: bool) -> None:
        if not self.found.done():
            self.found.set_result(is_found)


_Key = tuple[str, str]
"""The kind and the identifier of an item."""


def find_rest(beginning: Sequence[Event], whole: Sequence[Event]) -> Sequence[Event]:
    """Return the events of a stored log that come after the events received so far.

    A stored log is compacted (`threads/compact.py`): it has each text in one piece, and only the
    last value of each state. Texts are therefore compared by their length, and other events by
    their content.
    """
    return [*_Beginning(beginning).complete(whole)]


class _Beginning:
    """An index of the events received so far."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._once: set[_Key] = set()
        """Keys of events that occur once in a log: starts, ends and results."""
        self._lengths: defaultdict[_Key, int] = defaultdict(int)
        self._values: dict[_Key, Any] = {}
        """The last event of each state and activity."""
        self._others: list[Event] = []
        """All other events, in order."""
        for event in events:
            self._index_event(event)

    def complete(self, whole: Iterable[Event]) -> Iterator[Event]:
        """Yield the events of a stored log that are new."""
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

    def _index_event(self, event: Event) -> None:
        if (key := _get_once_key(event)) is not None:
            self._once.add(key)
        elif (piece := _get_piece(event)) is not None:
            self._lengths[piece[0]] += len(piece[1])
        elif (value := _get_value(event)) is not None:
            self._values[value[0]] = value[1]
        else:
            self._others.append(event)

    def _complete_text(self, event: Event, key: _Key, text: str) -> Iterator[Event]:
        """Yield the part of a text that has not been received yet."""
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
