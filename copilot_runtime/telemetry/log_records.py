"""Records of the logs of other processes: each is an event of the span under which it was written.

Exporters send logs and spans on their own, so a record waits here until its span has come.
"""

import threading
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from copilot_runtime.telemetry.span import Span, SpanEvent

MAX_RECORDS = 10_000
"""Most records that wait; the oldest go first."""
MAX_SIZE = 16_000_000
"""About how many characters they have, all together."""
MAX_EVENTS = 500
"""Most events of a span that takes a record."""


class LogRecord(NamedTuple):
    """A record, and the span it belongs to. `size` is about how many characters it has."""

    trace_id: str
    span_id: str
    event: SpanEvent
    size: int = 0


SpanKey = tuple[str, str]


class LogBuffer:
    """Keeps records until somebody has their spans. May be used from any thread."""

    def __init__(self, max_records: int = MAX_RECORDS, max_size: int = MAX_SIZE) -> None:
        self.count = 0
        """How many records wait."""
        self.dropped = 0
        """How many were left out: too many waited, or their span has too many events."""
        self._max_records = max_records
        self._max_size = max_size
        self._size = 0
        self._records: dict[SpanKey, list[LogRecord]] = {}
        self._lock = threading.Lock()

    def add(self, records: Iterable[LogRecord]) -> None:
        """Keep records; the oldest go if there are too many."""
        with self._lock:
            for record in records:
                self._records.setdefault((record.trace_id, record.span_id), []).append(record)
                self.count += 1
                self._size += record.size
                while self.count > self._max_records or self._size > self._max_size:
                    self.dropped += len(self._take(next(iter(self._records))))

    def find_spans(self, trace_id: str, span_ids: Iterable[str]) -> list[str]:
        """Return the spans of a trace for which records wait."""
        return [span_id for span_id in span_ids if (trace_id, span_id) in self._records]

    def attach(self, span: Span) -> None:
        """Hand the records of a span to it, in the order of their times."""
        key = (span.trace_id, span.span_id)
        if key not in self._records:
            return
        with self._lock:
            events = [record.event for record in self._take(key)]
        room = max(0, MAX_EVENTS - len(span.events))
        self.dropped += max(0, len(events) - room)
        span.events = sorted([*span.events, *events[:room]], key=_time)

    def _take(self, key: SpanKey) -> list[LogRecord]:
        records = self._records.pop(key, [])
        self.count -= len(records)
        self._size -= sum(record.size for record in records)
        return records


def _time(event: SpanEvent) -> int:
    return event.time


_SEVERITIES: Mapping[int, str] = {
    0: "TRACE",
    1: "DEBUG",
    2: "INFO",
    3: "WARN",
    4: "ERROR",
    5: "FATAL",
}


def name_severity(number: object) -> str:
    """Return what OpenTelemetry calls a severity from 1 to 24; nothing for anything else."""
    return _SEVERITIES.get((number - 1) // 4, "") if isinstance(number, int) else ""
