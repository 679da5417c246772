"""Log records of other processes, which become events of the spans they were emitted under.

Exporters send logs and spans separately, so a record is buffered until its span arrives.
"""

import threading
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from copilot_runtime.telemetry.span import Span, SpanEvent

MAX_RECORDS = 10_000
"""Maximum number of buffered records; the oldest are dropped first."""
MAX_SIZE = 16_000_000
"""Maximum total size of the buffered records, in approximate characters."""
MAX_EVENTS = 500
"""Maximum number of events of a span to which records are attached."""


class LogRecord(NamedTuple):
    """A log record and the ids of its span. `size` is its approximate length in characters."""

    trace_id: str
    span_id: str
    event: SpanEvent
    size: int = 0


SpanKey = tuple[str, str]


class LogBuffer:
    """Buffers log records until their spans arrive. Thread-safe."""

    def __init__(self, max_records: int = MAX_RECORDS, max_size: int = MAX_SIZE) -> None:
        self.count = 0
        """Number of buffered records."""
        self.dropped = 0
        """Number of dropped records: the buffer was full, or their span had too many events."""
        self._max_records = max_records
        self._max_size = max_size
        self._size = 0
        self._records: dict[SpanKey, list[LogRecord]] = {}
        self._lock = threading.Lock()

    def add(self, records: Iterable[LogRecord]) -> None:
        """Buffer records; drop the oldest if there are too many."""
        with self._lock:
            for record in records:
                self._records.setdefault((record.trace_id, record.span_id), []).append(record)
                self.count += 1
                self._size += record.size
                while self.count > self._max_records or self._size > self._max_size:
                    self.dropped += len(self._take(next(iter(self._records))))

    def find_spans(self, trace_id: str, span_ids: Iterable[str]) -> list[str]:
        """Return those of the span ids that have buffered records."""
        return [span_id for span_id in span_ids if (trace_id, span_id) in self._records]

    def attach(self, span: Span) -> None:
        """Move the buffered records of a span into its events, sorted by time."""
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
    """Return OpenTelemetry's name of a severity number from 1 to 24; empty for other values."""
    return _SEVERITIES.get((number - 1) // 4, "") if isinstance(number, int) else ""
