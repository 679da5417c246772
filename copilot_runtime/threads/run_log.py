"""The event bus in the memory of this process."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from copilot_runtime.api.bus import START, Batch, Bus, Cursor, LogReader
from copilot_runtime.api.events import (
    BRIEF,
    LAST,
    ActionExecutionArgs,
    ActionExecutionResult,
    Activity,
    AgentState,
    Custom,
    Event,
    Interrupt,
    MessagesSnapshot,
    Raw,
    ReasoningContent,
    TextMessageContent,
)
from copilot_runtime.base.errors import LimitExceeded, Misuse, NotFound
from copilot_runtime.base.expiry import ExpiryQueue
from copilot_runtime.base.jsonpatch import LONG, share_structure

_EVENT_BYTES = 160
"""Bytes per event without its text, measured on CPython 3.11. Texts count by characters."""

_LONGEST_CURSOR = 18
"""Maximum number of digits: parsing thousands is slow, and Python limits them anyway."""


class MemoryBus(Bus):
    """An append-only list per run, bounded in size, deleted `ttl` seconds after its end.

    A slow reader never blocks the writer: it reads missed events from the list. A run that
    exceeds its limits is refused with `LimitExceeded`; its last event is always accepted.
    """

    def __init__(
        self,
        *,
        max_events: int = 200_000,
        max_bytes: int = 16 * 1024 * 1024,
        ttl: float = 300.0,
    ) -> None:
        self.max_events = max_events
        self.max_bytes = max_bytes
        self.ttl = ttl
        self._logs: dict[str, _Log] = {}
        self._expiry = ExpiryQueue(ttl, self._forget)
        self.reader_count = 0

    async def append(self, log_id: str, event: Event) -> None:
        """Add an event and wake the readers. Raises `LimitExceeded` or, after the end, `Misuse`."""
        self._append(log_id, event)

    def reserve(self, log_id: str, events: Sequence[Event]) -> bool:
        """Return whether `append_all` will accept events. Raises `Misuse` after the end."""
        return self._reserve(self._open(log_id), events)

    def append_all(self, log_id: str, events: Sequence[Event]) -> bool:
        """Add events atomically and wake the readers once. Raises as `append` does.

        The limits apply to a last event of several, too; if this raises, `append` may accept some.
        """
        if len(events) == 1:  # nearly always
            self._append(log_id, events[0])
            return True
        log = self._open(log_id)
        if not self._reserve(log, events):
            raise self._build_limit_error()
        _, shared, size = log.reserved
        log.reserved = _NOTHING
        log.size += size
        if isinstance(events[-1], LAST):
            self._end(log_id, log)
        log.events += shared
        if log.readers:
            log.wake()
        return True

    def read(self, log_id: str, after: Cursor = START) -> AsyncGenerator[Batch, None]:
        """Follow a run from a cursor to its last event. Raises `NotFound` or `Misuse` at once."""
        log = self._logs.get(log_id)
        if log is None:
            raise NotFound(
                f"No run {log_id!r}: it never was, or its log is older than its lifetime.",
                hint="Raise log_ttl in the settings if clients come back later.",
            )
        return _LogReader(self, log, _position(after))

    def list_events(self, log_id: str) -> Sequence[Event]:
        """Return the current events of a log; an empty list if there is no such log."""
        log = self._logs.get(log_id)
        return [] if log is None else [*log.events]

    def count_readers(self) -> int:
        """Return the current number of readers."""
        return self.reader_count

    @property
    def drops_at_once(self) -> bool:
        return type(self).drop is MemoryBus.drop

    async def drop(self, log_id: str) -> None:
        """Delete a log. Its current readers may continue."""
        self._forget(log_id)
        self._expiry.remove(log_id)

    def _forget(self, log_id: str) -> None:
        self._logs.pop(log_id, None)

    def __len__(self) -> int:
        return len(self._logs)

    def _append(self, log_id: str, event: Event) -> None:
        log = self._logs.get(log_id)
        if log is None or log.ended:
            log = self._open(log_id)
        events = log.events
        if type(event) is TextMessageContent:  # nearly always
            log.size += _EVENT_BYTES + len(event.content)
        else:
            size = 0
            if type(event) not in BRIEF:
                event, size = log.measure(event)
            log.size += _EVENT_BYTES + size
            if isinstance(event, LAST):
                self._end(log_id, log)
        if (log.size > self.max_bytes or len(events) >= self.max_events) and not log.ended:
            raise self._build_limit_error()
        events.append(event)
        if log.readers:
            log.wake(event)

    def _open(self, log_id: str) -> "_Log":
        """Return a log, created if necessary. Raises `Misuse` if it has ended."""
        log = self._logs.get(log_id)
        if log is None:
            log = self._logs[log_id] = _Log()
        if log.ended:
            raise Misuse(f"The run {log_id!r} has ended: its log takes no more events.")
        return log

    def _reserve(self, log: "_Log", events: Sequence[Event]) -> bool:
        """Measure events and return whether they fit; a repeated call reuses the measurement."""
        if log.reserved[0] is events:
            return True
        shared: list[Event] = []
        total = _EVENT_BYTES * len(events)
        for event in events:
            if type(event) is TextMessageContent:  # nearly always
                total += len(event.content)
            elif type(event) not in BRIEF:
                event, size = log.measure(event)
                total += size
            shared.append(event)
        if log.size + total > self.max_bytes or len(log.events) + len(events) > self.max_events:
            log.sizes = None  # it includes the rejected events
            return False
        log.reserved = (events, shared, total)
        return True

    def _end(self, log_id: str, log: "_Log") -> None:
        log.ended = True
        self._expiry.add(log_id)

    def _build_limit_error(self) -> LimitExceeded:
        return LimitExceeded(
            f"The answer grew beyond {self.max_events} events or {self.max_bytes} bytes.",
            hint="Raise max_events_per_run or max_bytes_per_run in the settings.",
        )


_NOTHING: tuple[Sequence[Event], Sequence[Event], int] = ((), (), 0)


class _Log:
    __slots__ = ("ended", "events", "readers", "reserved", "size", "sizes")

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.size = 0
        self.reserved = _NOTHING
        """The reserved events: as given, as they will be added, and their size in bytes."""
        self.ended = False
        self.sizes: SizeTracker | None = None
        self.readers: list[_LogReader] = []
        """The readers that wait for the next event."""

    def wake(self, event: Event | None = None) -> None:
        """Tell the readers that an event was added; `None` stands for several."""
        readers, self.readers = self.readers, []
        for reader in readers:
            if not reader.take(event):
                self.readers.append(reader)

    def measure(self, event: Event) -> tuple[Event, int]:
        """Return the event with shared values, and the approximate size of its content in bytes."""
        match event:
            case ActionExecutionArgs(delta=text) | ActionExecutionResult(result=text):
                return event, len(text)
            case TextMessageContent(content=text) | ReasoningContent(content=text):
                return event, len(text)
            case AgentState() | Activity() | Custom() | Raw() | Interrupt() | MessagesSnapshot():
                pass
            case _:
                return event, 0
        if self.sizes is None:
            self.sizes = SizeTracker()
        event, values = _share_value(event, self.sizes)
        return event, self.sizes.add(values)


class _LogReader(LogReader):
    def __init__(self, bus: MemoryBus, log: _Log, position: int) -> None:
        self._bus = bus
        self._log = log
        self._position = position
        self._waiter: asyncio.Future[None] | None = None
        self._is_open = True
        bus.reader_count += 1

    async def __anext__(self) -> Batch:
        log = self._log
        while self._position >= len(log.events):
            if log.ended or not self._is_open:
                await self.athrow()
            self._waiter = asyncio.get_running_loop().create_future()
            log.readers.append(self)
            try:
                await self._waiter
            except BaseException:
                if self in log.readers:
                    log.readers.remove(self)
                raise
        events = log.events[self._position :]
        self._position += len(events)
        return Batch(str(self._position), events)

    async def asend(self, value: None) -> Batch:  # noqa: ARG002  # the interface's
        return await self.__anext__()

    async def athrow(self, *failure: Any) -> Batch:  # noqa: ARG002  # the interface's
        self._close()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self._close()

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        if self._is_open:
            self._bus.reader_count -= 1
            self._is_open, self._position = False, sys.maxsize

    def take(self, event: Event | None) -> bool:
        """Pass an event to the sink, or wake the task that waits. Returns whether it was woken."""
        waiter = self._waiter
        try:
            if event is not None and self.sink is not None and self.sink(event):
                self._position += 1
                return False
        except Exception as error:  # for the reader, not for the writer
            if waiter is not None and not waiter.done():
                waiter.set_exception(error)
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        return True


def _share_value(event: Event, sizes: "SizeTracker") -> tuple[Event, Sequence[Any]]:
    """Return an event that shares equal parts with the previous one, and its values."""
    match event:
        case AgentState(agent=agent, state=value):
            same = sizes.share(("state", agent), value)
            return event if same is value else replace(event, state=same), (same,)
        case Activity(message_id=id, content=value):
            same = sizes.share(("activity", id), value)
            return event if same is value else replace(event, content=same), (same,)
        case Custom(value=value) | Raw(event=value):
            return event, (value,)
        case Interrupt(value=value, messages=messages, metadata=metadata):
            return event, (value, metadata, *messages)
        case MessagesSnapshot(messages=messages):
            return event, messages
        case _:
            return event, ()


def _position(cursor: Cursor) -> int:
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > _LONGEST_CURSOR:
        raise Misuse(
            f"{cursor[:40]!r} is not a cursor of this bus. Send one that it gave, or {START!r}."
        )
    return int(cursor)


_CONTAINER_BYTES = 56
_PLACE_BYTES = 8
_ATOMS = frozenset({int, float, bool, type(None)})


class SizeTracker:
    """Measures the values of one log; a value shared by several events counts once.

    A state of 25 kB that is sent a thousand times, each time with one number changed, costs little
    more than a single one.
    """

    def __init__(self) -> None:
        self._last: dict[object, Any] = {}
        self._ids: set[int] = set()  # unique, because the log keeps these values alive

    def share(self, key: object, value: Any) -> Any:
        """Return an equal value that reuses the equal parts of the previous value of that key."""
        last = self._last.get(key)
        with suppress(Exception):  # comparing foreign values may raise, as with arrays
            value = value if last is None else share_structure(last, value)
        self._last[key] = value
        return value

    def add(self, values: Iterable[Any]) -> int:
        """Add values. Returns their approximate additional size in bytes."""
        ids, size, left = self._ids, 0, [*values]
        while left:
            value = left.pop()
            if isinstance(value, (str, bytes)):
                if len(value) >= LONG:
                    if id(value) in ids:
                        continue
                    ids.add(id(value))
                size += len(value)
                continue
            if type(value) in _ATOMS or id(value) in ids:
                continue
            ids.add(id(value))
            size += _CONTAINER_BYTES
            parts: Iterable[Any]
            if isinstance(value, dict):
                size += sum(len(key) for key in value if isinstance(key, str))
                parts = value.values()
                size += _PLACE_BYTES * len(value)
            elif isinstance(value, (list, tuple, set, frozenset)):
                parts = value
                size += _PLACE_BYTES * len(value)
            else:
                parts = _fields(value)
            if not _ATOMS.issuperset(map(type, parts)):
                left.extend(parts)
        return size


def _fields(value: object) -> list[Any]:
    """Return the field values of a dataclass or pydantic model; an empty list for other objects."""
    kind = type(value)
    if names := getattr(kind, "__dataclass_fields__", None):
        return [getattr(value, name, None) for name in names]
    return [*vars(value).values()] if hasattr(kind, "__pydantic_fields__") else []
