"""Compact the logs of ended runs for replay, and complete the logs of dead servers' runs."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from copilot_runtime.api.events import (
    LAST,
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Activity,
    AgentState,
    Event,
    MessagesSnapshot,
    ReasoningContent,
    ReasoningEnd,
    ReasoningStart,
    RunFailed,
    RunFinished,
    RunStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    Usage,
)
from copilot_runtime.base.errors import ErrorReport, Interrupted
from copilot_runtime.event_order.verify import EventOrder, interrupted_call
from copilot_runtime.threads.store import Segment

_Start = TextMessageStart | ActionExecutionStart | ReasoningStart
_End = TextMessageEnd | ActionExecutionEnd | ReasoningEnd
_Piece = Callable[[str, str], Event]
"""Builds the event that appends a text to the item with that id."""


def compact(
    events: Sequence[Event], *, ending: RunFinished | RunFailed | None = None
) -> list[Event]:
    """Return an equivalent log with as few events as possible, in an order every client accepts.

    Items keep their order and are contiguous: start, text, end. Of the states of an agent, and of
    the values of an activity, only the last one remains. Events in a wrong order are dropped, as
    by the AG-UI transport. Items that are open before the last event are closed there. In a run
    that failed or was stopped, a server action's call without a result gets a placeholder. A log
    without a last event belongs to an active run: it stays open, unless `ending` is given.
    """
    if (short := _compact_text(events)) is not None:
        return short
    log = _Log()
    last = log.take(events) or ending
    return [*log.events(last)]


def _compact_text(events: Sequence[Event]) -> list[Event] | None:
    """Compact the log of most runs: a single text, and its usage. Returns `None` for others."""
    if len(events) < 5:
        return None
    *events, last = events
    tail = [events.pop(), last] if type(events[-1]) is Usage else [last]
    started, start, *pieces, end = events
    if not (
        type(started) is RunStarted
        and type(start) is TextMessageStart
        and type(end) is TextMessageEnd
        and isinstance(last, LAST)
    ):
        return None
    key = start.message_id
    texts = [
        piece.content
        for piece in pieces
        if type(piece) is TextMessageContent and piece.message_id == key
    ]
    text = "".join(texts)
    if end.message_id != key or len(texts) < len(pieces) or not text:
        return None
    return [started, start, _content(key, text), end, *tail]


class _Item:
    """A text, call or reasoning block with its content."""

    __slots__ = ("end", "key", "piece", "pieces", "section", "start")

    def __init__(self, key: str, piece: "_Piece", start: _Start | None, section: int) -> None:
        self.key = key
        self.piece = piece
        self.start = start
        self.section = section
        self.pieces: list[str] = []
        self.end: _End | None = None

    def events(self) -> Iterator[Event]:
        if self.start is not None:
            yield self.start
        if text := "".join(self.pieces):
            yield self.piece(self.key, text)
        if self.end is not None:
            yield self.end


class _Log:
    def __init__(self) -> None:
        self._ordering = EventOrder(begun=True)
        self._started: RunStarted | None = None
        self._entries: list[_Item | Event] = []
        self._texts: dict[str, _Item] = {}
        self._calls: dict[str, _Item] = {}
        self._thoughts: dict[str, _Item] = {}
        self._unanswered: dict[str, str] = {}
        """Names of the calls without a result, by call id."""
        self._activities: dict[str, int] = {}
        """Indexes in the entries of the activities in this section, by message id."""
        self._states: dict[str, AgentState] = {}
        self._section = 0
        """Number of snapshots so far: no item may move across a snapshot."""

    def take(self, events: Iterable[Event]) -> RunFinished | RunFailed | None:
        """Process the events, and return the last one."""
        for event in events:
            match event:
                case TextMessageContent(message_id=key, content=text):
                    self._grow(self._texts, key, text)
                case ActionExecutionArgs(call_id=key, delta=text):
                    self._grow(self._calls, key, text)
                case ReasoningContent(message_id=key, content=text):
                    self._grow(self._thoughts, key, text)
                case _ if isinstance(event, LAST):
                    return event
                case _:
                    self._other(event)
        return None

    def events(self, last: RunFinished | RunFailed | None) -> Iterator[Event]:
        """Yield the shortened log."""
        closing_events: list[Event] = []
        if last is not None:
            failed = last.error if isinstance(last, RunFailed) else None
            closing_events = [
                closer
                for closer in self._ordering.closing_events(failed)
                if not self._closed(closer)
            ]
            if failed is not None:
                closing_events += self._interrupted_calls(failed, closing_events)
        if self._started is not None:
            yield self._started
        for entry in self._entries:
            if isinstance(entry, _Item):
                yield from entry.events()
            else:
                yield entry
        yield from closing_events
        yield from self._states.values()
        if last is not None:
            yield last

    def _interrupted_calls(
        self, failed: ErrorReport, closing_events: Sequence[Event]
    ) -> Sequence[Event]:
        """Return results for complete calls of server actions that have no result."""
        names = self._started.server_actions if self._started else ()
        closed = {it.call_id for it in closing_events if isinstance(it, ActionExecutionResult)}
        return [
            interrupted_call(key, name, failed, is_complete=True)
            for key, name in self._unanswered.items()
            if name in names and key not in closed
        ]

    def _other(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._started = self._started or event
            case AgentState(agent=agent):
                self._states.pop(agent, None)  # keep the order of the latest states
                self._states[agent] = event
            case Activity():
                self._activity(event)
            case MessagesSnapshot():
                self._entries.append(event)
                self._section += 1
                self._activities.clear()
            case TextMessageStart(message_id=key):
                self._begin(self._texts, key, _content, event)
            case ActionExecutionStart(call_id=key, name=name):
                self._unanswered.setdefault(key, name)
                self._begin(self._calls, key, _args, event)
            case ReasoningStart(message_id=key):
                self._begin(self._thoughts, key, _thought, event)
            case TextMessageEnd() | ActionExecutionEnd() | ReasoningEnd():
                self._closed(event)
            case ActionExecutionResult(call_id=key):
                self._unanswered.pop(key, None)
                if key in self._calls:  # a result implies complete arguments
                    self._closed(ActionExecutionEnd(call_id=key))
                self._entries.append(event)
            case _:
                if self._ordering.violation(event) is None:
                    self._entries.append(event)

    def _begin(self, items: dict[str, _Item], key: str, piece: _Piece, start: _Start) -> None:
        if key not in items:
            self._ordering.check(start)
            items[key] = item = _Item(key, piece, start, self._section)
            self._entries.append(item)

    def _grow(self, items: dict[str, _Item], key: str, text: str) -> None:
        item = items.get(key)
        if item is None:
            return
        if item.section != self._section:  # the snapshot has its first part
            items[key] = item = _Item(key, item.piece, None, self._section)
            self._entries.append(item)
        item.pieces.append(text)

    def _closed(self, event: Event) -> bool:
        """Close an open item in place. Returns `True` if the event is the end of an item."""
        match event:
            case TextMessageEnd(message_id=key):
                items = self._texts
            case ActionExecutionEnd(call_id=key):
                items = self._calls
            case ReasoningEnd(message_id=key):
                items = self._thoughts
            case _:
                return False
        if item := items.pop(key, None):
            item.end = event
            self._ordering.check(event)
        return True

    def _activity(self, event: Activity) -> None:
        place = self._activities.get(event.message_id)
        if place is None:
            self._activities[event.message_id] = len(self._entries)
            self._entries.append(event)
        elif event.replace:
            self._entries[place] = event


def _content(key: str, text: str) -> Event:
    return TextMessageContent(message_id=key, content=text)


def _args(key: str, text: str) -> Event:
    return ActionExecutionArgs(call_id=key, delta=text)


def _thought(key: str, text: str) -> Event:
    return ReasoningContent(message_id=key, content=text)


logger = logging.getLogger(__name__)

_MAX_UNSAVED_ENDS = 1000
"""If there are more, the oldest one is discarded."""

INTERRUPTED = RunFailed(
    error=Interrupted("The server stopped before the answer was complete.").report()
)


def prepend_head(head: Sequence[Event], events: Sequence[Event]) -> Sequence[Event]:
    """Return the log with its first events, even if the server died before the first write.

    `begin` stores the new messages of a request in `head`, which is their only copy until the log
    contains them. A head of several events is itself the start of the log.
    """
    if len(head) <= 1 and events and isinstance(events[0], RunStarted):
        return events
    return [*head, *events]


def complete_log(head: Sequence[Event], events: Sequence[Event]) -> Sequence[Event]:
    """Return the completed and compacted log of a dead server's run."""
    return compact(prepend_head(head, events), ending=INTERRUPTED)


class UnsavedEnds:
    """The last events of runs that could not be stored yet."""

    def __init__(self) -> None:
        self._segments: dict[str, Segment] = {}
        self._log_fields: dict[str, Mapping[str, str]] = {}

    def __bool__(self) -> bool:
        return bool(self._segments)

    def add(self, segment: Segment, log_fields: Mapping[str, str]) -> None:
        """Add the end of a run; `log_fields` are its ids for log lines."""
        self._segments[segment.log_id] = segment
        self._log_fields[segment.log_id] = log_fields
        if len(self._segments) > _MAX_UNSAVED_ENDS:
            self.remove(next(iter(self._segments.values())), is_saved=False)

    def segments(self) -> Sequence[Segment]:
        return [*self._segments.values()]

    def remove(self, segment: Segment, *, is_saved: bool) -> None:
        """Remove the end of a run; log an error if it was not saved."""
        self._segments.pop(segment.log_id, None)
        fields = self._log_fields.pop(segment.log_id, None)
        if not is_saved:
            logger.error("The end of the run %s could not be stored", segment.log_id, extra=fields)

    def give_up(self) -> None:
        """Discard all ends, and log each as an error."""
        for segment in self.segments():
            self.remove(segment, is_saved=False)
