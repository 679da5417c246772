"""Stores for spans: in memory, in SQLite (`sqlite`), or in JSON Lines by day (`jsonlines`)."""

from copilot_runtime.extensions.tracing.store.memory import MemoryTraceStore
from copilot_runtime.extensions.tracing.store.query import TraceQuery
from copilot_runtime.extensions.tracing.store.records import Record, decode_span, encode_span
from copilot_runtime.extensions.tracing.store.store import TraceStore
from copilot_runtime.extensions.tracing.store.traces import TraceFilter, TraceSummary

__all__ = [
    "MemoryTraceStore",
    "Record",
    "TraceFilter",
    "TraceQuery",
    "TraceStore",
    "TraceSummary",
    "decode_span",
    "encode_span",
]
