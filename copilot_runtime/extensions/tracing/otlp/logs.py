"""Join the logs of other processes with the spans under which they were written."""

from collections.abc import Sequence
from typing import Any

from copilot_runtime.extensions.tracing.store.records import decode_span
from copilot_runtime.extensions.tracing.store.store import TraceStore
from copilot_runtime.telemetry.log_records import LogBuffer, LogRecord
from copilot_runtime.telemetry.telemetry import Telemetry


class LogJoiner:
    """Notes records at spans that are stored, and leaves the others to wait for theirs."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    async def join(self, records: Sequence[LogRecord]) -> None:
        """Keep records: at their spans, as far as these are stored."""
        self._telemetry.import_logs(records)
        store: Any = getattr(self._telemetry, "store", None)
        logs: Any = getattr(self._telemetry, "logs", None)
        if not (isinstance(store, TraceStore) and isinstance(logs, LogBuffer)):
            return
        async with store.edits:
            for trace_id in {record.trace_id: None for record in records}:
                found = {span["span_id"]: span for span in await store.get_trace(trace_id)}
                for span_id in logs.find_spans(trace_id, found):
                    self._telemetry.import_span(decode_span(found[span_id]))
