"""JSON encoding of trace summaries and statistics, and rendering of large traces in threads."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from copilot_runtime.base.concurrency import call
from copilot_runtime.extensions.tracing.store.records import Record
from copilot_runtime.extensions.tracing.store.traces import TraceSummary

if TYPE_CHECKING:
    from copilot_runtime.extensions.tracing.stats import TraceStats

T = TypeVar("T")

_FEW = 500
"""Maximum number of spans that are rendered on the event loop: a thread would cost more."""


async def render_spans(spans: Sequence[Record], render: Callable[[], T]) -> T:
    """Return the result of `render`, called in a thread if there are many spans."""
    return render() if len(spans) <= _FEW else await call(render)


def encode_summary(summary: TraceSummary) -> dict[str, Any]:
    """Encode a trace summary. Times are nanoseconds since 1970, the duration is in seconds."""
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
        "rating": summary.rating,
        "model_calls": summary.model_calls,
        "tool_calls": summary.tool_calls,
        "models": [*summary.models],
        "input_tokens": summary.input_tokens,
        "output_tokens": summary.output_tokens,
        "dollars": summary.dollars,
        "unpriced": summary.unpriced,
    }


def encode_stats(stats: "TraceStats") -> dict[str, Any]:
    """Encode statistics, with times in seconds."""
    return asdict(stats)
