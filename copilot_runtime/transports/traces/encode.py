"""Summaries and statistics of traces as JSON."""

from dataclasses import asdict
from typing import Any

from copilot_runtime.telemetry.stats import TraceStats
from copilot_runtime.telemetry.store.traces import TraceSummary


def encode_summary(summary: TraceSummary) -> dict[str, Any]:
    """Return a trace in short. Times are nanoseconds since 1970, and the duration in seconds."""
    return {
        "trace_id": summary.trace_id,
        "name": summary.name,
        "agent": summary.agent,
        "thread_id": summary.thread_id,
        "run_id": summary.run_id,
        "start_time_unix_nano": summary.start,
        "end_time_unix_nano": summary.end,
        "duration": summary.duration,
        "spans": summary.spans,
        "errors": summary.errors,
        "error_type": summary.error_type,
        "outcome": summary.outcome,
        "model_calls": summary.model_calls,
        "tool_calls": summary.tool_calls,
        "models": [*summary.models],
        "input_tokens": summary.input_tokens,
        "output_tokens": summary.output_tokens,
        "dollars": summary.dollars,
        "unpriced": summary.unpriced,
    }


def encode_stats(stats: TraceStats) -> dict[str, Any]:
    """Return statistics, with the times in seconds."""
    return asdict(stats)
