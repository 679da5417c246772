"""A trace in short, and what may be asked of traces."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.store.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFilter:
    """Which traces are meant; what is not set does not matter. Times are nanoseconds since 1970."""

    trace_id: str = ""
    resource_id: str = ""
    """Traces with a span of this resource: `resource.attributes.id`, or the id of the thread."""
    thread_id: str = ""
    run_id: str = ""
    agent: str = ""
    since: int = 0
    until: int = 0
    has_error: bool | None = None
    min_duration: float = 0.0
    """Seconds."""
    text: str = ""
    """A part of the name of a span, of the model, of an error or of the thread, in any case."""


@dataclass(slots=True, kw_only=True)
class TraceSummary:
    """A trace in a line. Tokens and dollars are those of requests to models alone."""

    trace_id: str
    name: str = ""
    start: int = 0
    end: int = 0
    thread_id: str = ""
    run_id: str = ""
    agent: str = ""
    spans: int = 0
    errors: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0
    unpriced: int = 0
    """How many requests to models have no known price."""
    models: list[str] = field(default_factory=list)
    error_type: str = ""
    outcome: str = ""
    has_root: bool = False

    @property
    def duration(self) -> float:
        """Seconds from the first start to the last end."""
        return max(0, self.end - self.start) / 1e9

    def add(self, record: Record) -> None:
        """Count one more span."""
        of: dict[str, Any] = record["attributes"]
        start, end = record["start_time_unix_nano"], record["end_time_unix_nano"]
        self.start = min(self.start, start) if self.spans else start
        self.end = max(self.end, end)
        self.spans += 1
        if record["status"]["code"] == 2:
            self.errors += 1
            self.error_type = self.error_type or str(of.get(semconv.ERROR_TYPE, ""))
        is_root = not record["parent_span_id"]
        operation = of.get(semconv.OPERATION_NAME)
        if is_root or (not self.has_root and (not self.name or operation == semconv.INVOKE_AGENT)):
            self.name = record["name"]
            self.agent = str(of.get(semconv.AGENT_NAME) or self.agent)
            self.outcome = str(of.get(semconv.RUN_OUTCOME) or self.outcome)
        self.has_root = self.has_root or is_root
        self.thread_id = self.thread_id or str(of.get(semconv.CONVERSATION_ID, ""))
        self.run_id = self.run_id or str(of.get(semconv.RUN_ID, ""))
        if operation == semconv.EXECUTE_TOOL:
            self.tool_calls += 1
        elif operation in _MODEL_OPERATIONS:
            self._add_model_call(of)

    def _add_model_call(self, of: dict[str, Any]) -> None:
        self.model_calls += 1
        self.input_tokens += _count(of.get(semconv.USAGE_INPUT_TOKENS))
        self.output_tokens += _count(of.get(semconv.USAGE_OUTPUT_TOKENS))
        dollars = of.get(semconv.COST_DOLLARS)
        if isinstance(dollars, int | float):
            self.dollars += dollars
        else:
            self.unpriced += 1
        model = of.get(semconv.RESPONSE_MODEL) or of.get(semconv.REQUEST_MODEL)
        if model and model not in self.models:
            self.models.append(str(model))


_MODEL_OPERATIONS = {semconv.CHAT, semconv.TEXT_COMPLETION, semconv.GENERATE_CONTENT}


def summarize_trace(records: Iterable[Record]) -> TraceSummary | None:
    """Return a trace in short; None for no spans."""
    summary: TraceSummary | None = None
    for record in records:
        summary = summary or TraceSummary(trace_id=record["trace_id"])
        summary.add(record)
    return summary


def sort_spans(records: Iterable[Record]) -> list[Record]:
    """Return spans by their start; those that began at once in the order they came in."""
    return sorted(records, key=lambda record: record["start_time_unix_nano"])


def match_summary(summary: TraceSummary, filter: TraceFilter, spans: Sequence[Record]) -> bool:
    """Return whether a trace is meant by a filter."""
    if filter.trace_id and summary.trace_id != filter.trace_id:
        return False
    if filter.since and summary.end < filter.since:
        return False
    if filter.until and summary.start > filter.until:
        return False
    if filter.has_error is not None and (summary.errors > 0) is not filter.has_error:
        return False
    if filter.min_duration and summary.duration < filter.min_duration:
        return False
    conditions = (
        (filter.thread_id, semconv.CONVERSATION_ID),
        (filter.run_id, semconv.RUN_ID),
        (filter.agent, semconv.AGENT_NAME),
    )
    for value, name in conditions:
        if value and not any(span["attributes"].get(name) == value for span in spans):
            return False
    if filter.resource_id and not any(is_of_resource(span, filter.resource_id) for span in spans):
        return False
    return not filter.text or any(has_text(span, filter.text.lower()) for span in spans)


def is_of_resource(span: Record, resource_id: str) -> bool:
    """Return whether a span is of a resource: it names it, or belongs to its thread."""
    if span["resource"]["attributes"].get("id") == resource_id:
        return True
    thread = span["attributes"].get(semconv.CONVERSATION_ID)
    return bool(thread) and resource_id in (thread, f"common.Conversation.{thread}")


def has_text(span: Record, text: str) -> bool:
    """Return whether a span has a text, in lower case, in its name or in what it is about."""
    of = span["attributes"]
    values = [span["name"], *(of.get(name, "") for name in _SEARCHED)]
    return any(text in str(value).lower() for value in values)


_SEARCHED = (
    semconv.RESPONSE_MODEL,
    semconv.REQUEST_MODEL,
    semconv.ERROR_TYPE,
    semconv.CONVERSATION_ID,
    semconv.RUN_ID,
    semconv.TOOL_NAME,
)


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0
