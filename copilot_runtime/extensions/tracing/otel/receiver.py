"""Availability of receivers: one warning when exports start to fail, one line on recovery."""

import logging
import threading
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

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
        except Exception as error:  # an exporter is somebody else's code
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
                    logger.info("%s takes telemetry again.", self._place)
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
