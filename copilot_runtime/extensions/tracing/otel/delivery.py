"""Delivery of telemetry to receivers: queues with threads of their own, and their availability.

No run waits for a receiver. One warning is logged when exports start to fail, one line on recovery.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Condition, Thread
from time import monotonic
from typing import Any, Generic, TypeVar

from opentelemetry.sdk._logs import LogRecordProcessor, ReadableLogRecord, ReadWriteLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

PATIENCE = 3.0
"""Maximum time in seconds that a shutdown waits for receivers."""

logger = logging.getLogger(__name__)

_SDK_LOGGERS = (
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
    "opentelemetry.exporter.otlp.proto.http",
    "opentelemetry.exporter.otlp.proto.http._log_exporter",
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.sdk.metrics._internal.export",
)
"""Loggers of the SDK's exporters, which repeat messages while a receiver fails."""

_reasons: ContextVar[list[str] | None] = ContextVar("copilot_runtime.export", default=None)


class _ReasonFilter(logging.Filter):
    """A filter that collects the SDK's messages about our exports instead of logging them."""

    def filter(self, record: logging.LogRecord) -> bool:
        reasons = _reasons.get()
        if reasons is None:  # the host program exports something by itself
            return True
        if record.levelno >= logging.WARNING:
            reasons.append(record.getMessage())
        return False


_FILTER = _ReasonFilter()


class Receiver:
    """The availability of a receiver of spans, metrics and events."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._failing: set[str] = set()
        self._noting = threading.Lock()
        for name in _SDK_LOGGERS:
            logging.getLogger(name).addFilter(_FILTER)

    @property
    def is_failing(self) -> bool:
        """True if the last delivery failed."""
        return bool(self._failing)

    @contextmanager
    def watch(self, signal: str) -> Generator["Delivery"]:
        """Track a delivery of `signal`. An exception counts as a failure."""
        delivery = Delivery()
        token = _reasons.set(delivery.reasons)
        try:
            yield delivery
        except Exception as error:  # an exporter is third-party code
            delivery.is_done = False
            delivery.reasons.append(f"{type(error).__name__}: {error}")
        finally:
            _reasons.reset(token)
            self._note(signal, delivery)

    def _note(self, signal: str, delivery: "Delivery") -> None:
        with self._noting:  # each signal is sent by a thread of its own
            self._log(signal, delivery)

    def _log(self, signal: str, delivery: "Delivery") -> None:
        if delivery.is_done:
            if signal in self._failing:
                self._failing.discard(signal)
                if not self._failing:
                    logger.info("%s accepts telemetry again.", self._place)
            return
        reason = delivery.reasons[-1] if delivery.reasons else "no reason was given"
        level = logging.DEBUG if self._failing else logging.WARNING
        self._failing.add(signal)
        logger.log(
            level,
            "%s does not take %s, which are lost until it does: %s",
            self._place,
            signal,
            reason,
        )


class Delivery:
    """An attempt to send a batch."""

    def __init__(self) -> None:
        self.is_done = False
        self.reasons: list[str] = []
        """Messages that the exporter logged about the delivery."""


Item = TypeVar("Item")

_BATCH = 512
_MAX_SIZE = 64 * 1024 * 1024


class ExportQueue(Generic[Item]):
    """Exports queued items in batches. Items that do not fit are dropped and counted.

    `export` sends a batch, never raises, and returns True if the receiver accepted it; `drop` gets
    the number of items that did not fit or were rejected. A batch is sent when it is full, or after
    `interval` seconds. `put` never blocks.
    """

    def __init__(
        self,
        name: str,
        export: Callable[[Sequence[Item]], bool],
        drop: Callable[[int], None],
        *,
        interval: float = 5,
        max_items: int = 2048,
        max_size: int = _MAX_SIZE,
    ) -> None:
        self._name = name
        self._export = export
        self._drop = drop
        self._interval = interval
        self._max_items = max_items
        self._max_size = max_size
        self._batch = min(_BATCH, max_items)
        self._changed = Condition()
        self._items: deque[tuple[Item, int]] = deque()
        self._size = 0
        self._thread: Thread | None = None
        self._is_busy = False
        self._is_hasty = False
        self._is_closed = False

    def put(self, item: Item, size: int = 0) -> None:
        """Queue an item of about `size` characters, or drop it if the queue is full."""
        with self._changed:
            if self._thread is None and not self._is_closed:
                self._thread = Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            fits = len(self._items) < self._max_items and self._size + size <= self._max_size
            if fits and not self._is_closed:
                self._items.append((item, size))
                self._size += size
                if len(self._items) == self._batch:
                    self._changed.notify_all()
                return
        self._drop(1)

    def flush(self, timeout: float) -> bool:
        """Send all queued items; return True if this was done within `timeout` seconds."""
        with self._changed:
            self._is_hasty = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not (self._items or self._is_busy), timeout)

    def close(self, timeout: float) -> None:
        """Send all queued items within `timeout` seconds, and accept no more."""
        self.flush(timeout)
        with self._changed:
            self._is_closed = True
            left = len(self._items)
            self._items.clear()
            self._changed.notify_all()
        if left:
            self._drop(left)

    def _work(self) -> None:
        while batch := self._take_batch():
            if not self._export(batch):
                self._drop(len(batch))
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()

    def _take_batch(self) -> Sequence[Item]:
        """Wait for the next batch; return an empty one when the queue is closed."""
        with self._changed:
            until = monotonic() + self._interval
            while not self._is_due(until):
                if (seconds := until - monotonic()) <= 0:
                    seconds = self._interval
                    until = monotonic() + seconds
                self._changed.wait(seconds)
            if self._is_closed:
                return ()
            batch = [self._items.popleft() for _ in range(min(len(self._items), self._batch))]
            self._size -= sum(size for _, size in batch)
            self._is_busy = True
            self._is_hasty = self._is_hasty and bool(self._items)
            return [item for item, _ in batch]

    def _is_due(self, until: float) -> bool:
        """Return True if a batch is due, or the queue is closed."""
        if self._is_closed:
            return True
        is_late = self._is_hasty or monotonic() >= until or len(self._items) >= self._batch
        return bool(self._items) and is_late


MakeQueue = Callable[[str, Callable[[Sequence[Any]], bool]], ExportQueue[Any]]


class _Queued:
    """The base of the span and log record processors: a queue in front of an exporter."""

    signal: str
    """The name of the items in thread names and messages."""

    def __init__(
        self,
        exporter: SpanExporter | LogRecordExporter,
        receiver: Receiver,
        build_queue: MakeQueue,
    ) -> None:
        self._exporter: Any = exporter
        self._receiver = receiver
        self._queue = build_queue(f"telemetry-{self.signal}", self._export)

    def force_flush(self, timeout_millis: int = int(PATIENCE * 1000)) -> bool:
        """Send the queued items."""
        return self._queue.flush(min(timeout_millis / 1000, PATIENCE))

    def shutdown(self) -> None:
        """Send the queued items within a few seconds, and shut down the exporter."""
        self._queue.close(PATIENCE)
        self._exporter.shutdown()

    def _export(self, items: Sequence[Any]) -> bool:
        with self._receiver.watch(self.signal) as delivery:
            result = self._exporter.export(items)
            delivery.is_done = result in (SpanExportResult.SUCCESS, LogRecordExportResult.SUCCESS)
        return delivery.is_done


class QueueSpanProcessor(_Queued, SpanProcessor):
    """A span processor that queues ended spans for an exporter."""

    signal = "spans"

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span, if it was sampled."""
        context = span.get_span_context()
        if context is not None and context.trace_flags.sampled:
            events = sum(measure(event.attributes) for event in span.events)
            self._queue.put(span, measure(span.attributes) + events)


class QueueLogProcessor(_Queued, LogRecordProcessor):
    """A log record processor that queues events for an exporter."""

    signal = "events"

    def on_emit(self, log_record: ReadWriteLogRecord) -> None:
        """Queue an event."""
        record = ReadableLogRecord(
            log_record.log_record,
            log_record.resource or Resource.get_empty(),
            log_record.instrumentation_scope,
        )
        self._queue.put(record, measure(record.log_record.attributes))


class QuietMetricExporter(MetricExporter):
    """A metric exporter that logs only the first of consecutive failures of another exporter."""

    def __init__(self, exporter: MetricExporter, receiver: Receiver) -> None:
        super().__init__(exporter._preferred_temporality, exporter._preferred_aggregation)
        self._exporter = exporter
        self._receiver = receiver

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        """Send metrics."""
        with self._receiver.watch("metrics") as delivery:
            result = self._exporter.export(metrics_data, timeout_millis, **kwargs)
            delivery.is_done = result is MetricExportResult.SUCCESS
        done = delivery.is_done
        return MetricExportResult.SUCCESS if done else MetricExportResult.FAILURE

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Send the queued items."""
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Shut down the wrapped exporter."""
        self._exporter.shutdown(timeout_millis, **kwargs)


def measure(value: Any) -> int:
    """Return the approximate number of characters of a value."""
    if isinstance(value, str | bytes):
        return len(value)
    if hasattr(value, "items"):
        return sum(len(str(key)) + measure(member) for key, member in value.items())
    if isinstance(value, list | tuple):
        return sum(map(measure, value))
    return 8
