"""What is said of a receiver that fails: one warning, and one line when it works again."""

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
"""What exporters of the SDK log to, again and again while a receiver fails."""

_reasons: ContextVar[list[str] | None] = ContextVar("copilot_runtime.export", default=None)


class _ReasonFilter(logging.Filter):
    """Keeps what the SDK says of an export of ours, in place of logging it."""

    def filter(self, record: logging.LogRecord) -> bool:
        reasons = _reasons.get()
        if reasons is None:  # the host program exports something by itself
            return True
        if record.levelno >= logging.WARNING:
            reasons.append(record.getMessage())
        return False


_FILTER = _ReasonFilter()


class Receiver:
    """A receiver of spans, metrics and events, and whether it takes them."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._failing: set[str] = set()
        self._noting = threading.Lock()
        for name in _SDK_LOGGERS:
            logging.getLogger(name).addFilter(_FILTER)

    @property
    def is_failing(self) -> bool:
        """Whether it did not take what was sent last."""
        return bool(self._failing)

    @contextmanager
    def watch(self, signal: str) -> Generator["Delivery"]:
        """Watch an attempt to send `signal`. What it raises is a failure as well."""
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
    """One attempt to send something."""

    def __init__(self) -> None:
        self.is_done = False
        self.reasons: list[str] = []
        """What the exporter said about it."""
