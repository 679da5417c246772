"""File exporters: each batch is appended as a line of OTLP JSON.

https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/
"""

import os
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import orjson
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

_IDS = ("traceId", "spanId", "parentSpanId")


class FileSpanExporter(SpanExporter):
    """Writes spans to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Write a line."""
        append_line(self._path, encode_spans(spans))
        return SpanExportResult.SUCCESS


class FileLogExporter(LogRecordExporter):
    """Writes events to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        """Write a line."""
        append_line(self._path, encode_logs(batch))
        return LogRecordExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return true: nothing is held back."""
        del timeout_millis
        return True

    def shutdown(self) -> None:
        """Do nothing: the file is closed after each line."""


class FileMetricExporter(MetricExporter):
    """Writes metrics to a file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        """Write a line."""
        del timeout_millis, kwargs
        append_line(self._path, encode_metrics(metrics_data))
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Return true: nothing is held back."""
        del timeout_millis
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Do nothing: the file is closed after each line."""


def append_line(path: Path, message: Message) -> None:
    """Append a message as one line in a single write; the file is readable by its owner only."""
    line = orjson.dumps(to_json(message)) + b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab", buffering=0, opener=_open_private) as file:
        file.write(line)


def to_json(message: Message) -> dict[str, Any]:
    """Encode a protobuf message as OTLP JSON: ids in hexadecimal, enums as numbers."""
    found = MessageToDict(message, use_integers_for_enums=True)
    _write_ids(found)
    return found


def _write_ids(value: Any) -> None:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        for name in _IDS:
            if isinstance(members.get(name), str):
                members[name] = b64decode(members[name]).hex()
        for member in members.values():
            _write_ids(member)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            _write_ids(item)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
