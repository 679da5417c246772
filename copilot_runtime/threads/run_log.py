"""The logs of runs, in the memory of this process."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from copilot_runtime.api.bus import START, Batch, Bus, Cursor
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
"""Digits; reading thousands of them takes long, and Python refuses at last."""


class MemoryBus(Bus):
    """An append-only list per run, bounded in size, deleted `ttl` seconds after its end.

    A slow reader never slows the writer: it finds what it missed in the list. A run that
    outgrows its list is refused with `LimitExceeded`; its last event is always taken.
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
        self._readers = 0

    async def append(self, log_id: str, event: Event) -> None:
        """Add an event and wake the readers. Raises `LimitExceeded` or, after the end, `Misuse`."""
        log = self._open(log_id)
        event, size = log.measure(event)
        log.size += size
        if isinstance(event, LAST):
            self._end(log_id, log)
        elif log.size > self.max_bytes or len(log.events) >= self.max_events:
            raise self._build_limit_error()
        log.events.append(event)
        if log.waiters:
            log.wake()

    async def reserve(self, log_id: str, events: Sequence[Event]) -> bool:
        """Return whether `append_all` will take events. Raises `Misuse` after the end."""
        return self._reserve(self._open(log_id), events)

    async def append_all(self, log_id: str, events: Sequence[Event]) -> bool:
        """Add events, all or none, and wake the readers once. Raises as `append` does.

        A last event has to fit, too: when this refuses, `append` may still take some of them.
        """
        self.add(log_id, events)
        return True

    def add(self, log_id: str, events: Sequence[Event]) -> None:
        """Add events as `append_all` does."""
        log = self._open(log_id)
        if not self._reserve(log, events):
            raise self._build_limit_error()
        _, shared, size = log.reserved
        log.reserved = _NOTHING
        log.size += size
        if isinstance(events[-1], LAST):
            self._end(log_id, log)
        log.events += shared
        if log.waiters:
            log.wake()

    def read(self, log_id: str, after: Cursor = START) -> AsyncGenerator[Batch, None]:
        """Follow a run from a cursor to its last event. Raises `NotFound` or `Misuse` at once."""
        log = self._logs.get(log_id)
        if log is None:
            raise NotFound(
                f"No run {log_id!r}: it never was, or its log is older than its lifetime.",
                hint="Raise log_ttl in the settings if clients come back later.",
            )
        return self._follow(log, _position(after))

    def list_events(self, log_id: str) -> Sequence[Event]:
        """Return the events of a log so far; none for a log that is not there."""
        log = self._logs.get(log_id)
        return [] if log is None else [*log.events]

    def count_readers(self) -> int:
        """Return how many follow a log at the moment."""
        return self._readers

    async def drop(self, log_id: str) -> None:
        """Delete a log. Its current readers may continue."""
        self._forget(log_id)
        self._expiry.remove(log_id)

    def _forget(self, log_id: str) -> None:
        self._logs.pop(log_id, None)

    def __len__(self) -> int:
        return len(self._logs)

    async def _follow(self, log: "_Log", position: int) -> AsyncGenerator[Batch, None]:
        events = log.events
        self._readers += 1
        try:
            while True:
                if position < len(events):
                    batch = events[position:]
                    position = len(events)
                    yield Batch(str(position), batch)
                elif log.ended:
                    return
                else:
                    waiter = log.growth()
                    try:
                        await waiter
                    except asyncio.CancelledError:
                        if waiter in log.waiters:
                            log.waiters.remove(waiter)
                        raise
        finally:
            self._readers -= 1

    def _open(self, log_id: str) -> "_Log":
        """Return a log that takes more events, made if need be."""
        log = self._logs.get(log_id)
        if log is None:
            log = self._logs[log_id] = _Log()
        if log.ended:
            raise Misuse(f"The run {log_id!r} has ended: its log takes no more events.")
        return log

    def _reserve(self, log: "_Log", events: Sequence[Event]) -> bool:
        """Measure events, unless that has just been done, and return whether there is room."""
        if log.reserved[0] is events:
            return True
        shared: list[Event] = []
        total = 0
        for event in events:
            event, size = log.measure(event)
            shared.append(event)
            total += size
        if log.size + total > self.max_bytes or len(log.events) + len(events) > self.max_events:
            log.sizes = None  # it counts what will not be added
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
    __slots__ = ("ended", "events", "reserved", "size", "sizes", "waiters")

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.size = 0
        self.reserved = _NOTHING
        """Events that have room: as they came, as they will be added, and their size."""
        self.ended = False
        self.sizes: SizeTracker | None = None
        self.waiters: list[asyncio.Future[None]] = []

    def wake(self) -> None:
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def measure(self, event: Event) -> tuple[Event, int]:
        """Return an event with shared values, and about how many bytes more it takes."""
        match event:
            case TextMessageContent(content=text) | ActionExecutionArgs(delta=text):
                return event, _EVENT_BYTES + len(text)
            case _ if type(event) in BRIEF:  # asked before all those classes are
                return event, _EVENT_BYTES
            case ReasoningContent(content=text) | ActionExecutionResult(result=text):
                return event, _EVENT_BYTES + len(text)
            case AgentState() | Activity() | Custom() | Raw() | Interrupt() | MessagesSnapshot():
                pass
            case _:
                return event, _EVENT_BYTES
        if self.sizes is None:
            self.sizes = SizeTracker()
        event, values = _share_value(event, self.sizes)
        return event, _EVENT_BYTES + self.sizes.add(values)

    def growth(self) -> asyncio.Future[None]:
        """Return the future that resolves at the next append."""
        waiter = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        return waiter


def _share_value(event: Event, sizes: "SizeTracker") -> tuple[Event, Sequence[Any]]:
    """Return an event that shares what it can with the one before it, and its values."""
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
    """The values of one log: what is in several of them is stored, and counts, once.

    A state of 25 kB that comes a thousand times, each time with another number in it, costs little
    more than one.
    """

    def __init__(self) -> None:
        self._last: dict[object, Any] = {}
        self._ids: set[int] = set()  # of values that the log keeps alive, so each is unique

    def share(self, key: object, value: Any) -> Any:
        """Return a value made of the parts of the last one of that key, where they are the same."""
        last = self._last.get(key)
        with suppress(Exception):  # values of a program compare as they like: arrays refuse to
            value = value if last is None else share_structure(last, value)
        self._last[key] = value
        return value

    def add(self, values: Iterable[Any]) -> int:
        """Add values. Returns about how many bytes more they take."""
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
