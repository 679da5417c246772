"""A trace in short, and what may be asked of traces."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.store.records import Record

LabelKind = Literal["agent", "thread", "run", "resource"]


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
    labels: set[tuple[LabelKind, str]] = field(
        default_factory=set[tuple[LabelKind, str]], repr=False, compare=False
    )
    """Agents, threads, runs and resources of spans, besides those above: for filters."""

    @property
    def duration(self) -> float:
        """Seconds from the first start to the last end."""
        return max(0, self.end - self.start) / 1e9

    def add(self, record: Record) -> None:
        """Count one more span."""
        of: dict[str, Any] = record["attributes"]
        start, end = record["start_time_unix_nano"], record["end_time_unix_nano"]
        if not self.spans or start < self.start:
            self.start = start
        if end > self.end:
            self.end = end
        self.spans += 1
        if record["status"]["code"] == 2:
            self.errors += 1
            self.error_type = self.error_type or str(of.get(semconv.ERROR_TYPE, ""))
        operation = of.get(semconv.OPERATION_NAME)
        self._take_name(record, operation)
        if thread := of.get(semconv.CONVERSATION_ID):
            self.thread_id = self._label("thread", self.thread_id, thread)
        if run := of.get(semconv.RUN_ID):
            self.run_id = self._label("run", self.run_id, run)
        if resource := record["resource"]["attributes"].get("id"):
            self.labels.add(("resource", str(resource)))
        if operation == semconv.EXECUTE_TOOL:
            self.tool_calls += 1
        elif operation in _MODEL_OPERATIONS:
            self._add_model_call(of)

    def has_label(self, kind: LabelKind, value: str) -> bool:
        """Return whether one of the spans is of an agent, a thread, a run or a resource."""
        return (kind, value) in self.labels or {
            "agent": self.agent,
            "thread": self.thread_id,
            "run": self.run_id,
        }.get(kind) == value

    def _take_name(self, record: Record, operation: Any) -> None:
        """Take the name of the span that began the trace, as far as it is known."""
        of = record["attributes"]
        agent = of.get(semconv.AGENT_NAME)
        is_root = not record["parent_span_id"]
        if is_root or (not self.has_root and (not self.name or operation == semconv.INVOKE_AGENT)):
            self.name = record["name"]
            self.outcome = str(of.get(semconv.RUN_OUTCOME) or self.outcome)
            self.has_root = self.has_root or is_root
            if agent:
                former, self.agent = self.agent, str(agent)
                self._label("agent", self.agent, former or self.agent)
        elif agent:
            self._label("agent", self.agent, agent)

    def _label(self, kind: LabelKind, first: str, value: Any) -> str:
        """Return the first value there was; others become labels."""
        if value == first:
            return first
        if not first and kind != "agent":
            return str(value)
        self.labels.add((kind, str(value)))
        return first

    def _add_model_call(self, of: dict[str, Any]) -> None:
        self.model_calls += 1
        self.input_tokens += _count(of.get(semconv.USAGE_INPUT_TOKENS))
        self.output_tokens += _count(of.get(semconv.USAGE_OUTPUT_TOKENS))
        dollars = of.get(semconv.COST_DOLLARS)
        if isinstance(dollars, int | float) and 0 <= dollars < _MOST_DOLLARS:
            self.dollars += dollars
        else:
            self.unpriced += 1
        model = of.get(semconv.RESPONSE_MODEL) or of.get(semconv.REQUEST_MODEL)
        if model and str(model) not in self.models:
            self.models.append(str(model))


_MODEL_OPERATIONS = {semconv.CHAT, semconv.TEXT_COMPLETION, semconv.GENERATE_CONTENT}


def count_spans(trace_id: str, records: Iterable[Record]) -> TraceSummary:
    """Return a trace in short, from its spans in the order they came in."""
    summary = TraceSummary(trace_id=trace_id)
    for record in records:
        summary.add(record)
    return summary


def summarize_trace(records: Sequence[Record]) -> TraceSummary | None:
    """Return a trace in short; None for no spans."""
    return count_spans(records[0]["trace_id"], records) if records else None


def sort_spans(records: Iterable[Record]) -> list[Record]:
    """Return spans by their start; those that began at once in the order they came in."""
    return sorted(records, key=lambda record: record["start_time_unix_nano"])


def match_summary(summary: TraceSummary, filter: TraceFilter) -> bool:
    """Return whether a trace is meant by a filter, as far as it does not ask for a text."""
    if filter.trace_id and summary.trace_id != filter.trace_id:
        return False
    if filter.since and summary.end < filter.since:
        return False
    if filter.until and summary.start > filter.until:
        return False
    if filter.has_error is not None and (summary.errors > 0) is not filter.has_error:
        return False
    if filter.min_duration and summary.end - summary.start < int(filter.min_duration * 1e9):
        return False
    return all(
        any(summary.has_label(kind, value) for kind, value in options)
        for options in list_labels(filter)
    )


def list_labels(filter: TraceFilter) -> Sequence[Sequence[tuple[LabelKind, str]]]:
    """Return the labels that a filter wants a trace to have: one of each list."""
    resource = filter.resource_id
    thread = resource.removeprefix("common.Conversation.")
    labels: Sequence[Sequence[tuple[LabelKind, str]]] = (
        (("thread", filter.thread_id),),
        (("run", filter.run_id),),
        (("agent", filter.agent),),
        (("resource", resource), ("thread", resource), ("thread", thread)),
    )
    return [options for options in labels if options[0][1]]


def match_text(spans: Iterable[Record], text: str) -> bool:
    """Return whether one of the spans has a text, in any case; each trace has no text at all."""
    lower = text.lower()
    return not lower or any(has_text(span, lower) for span in spans)


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
    """Return a number of tokens, which some write as text; 0 for what is none."""
    match value:
        case str() if value.isdecimal() and len(value) < _LONGEST_NUMBER:
            value = int(value)
        case float() if value.is_integer():
            value = int(value)
        case _:
            pass
    return value if type(value) is int and 0 < value < _MOST_TOKENS else 0


_LONGEST_NUMBER = 16
_MOST_TOKENS = 2**40
_MOST_DOLLARS = 1e9
