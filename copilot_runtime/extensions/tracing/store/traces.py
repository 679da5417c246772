"""Trace summaries, and trace filters with their parsers from texts such as `1h`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import time_ns
from typing import Any, Literal

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.tracing.store.records import KINDS, Record, read_cost, read_count
from copilot_runtime.extensions.tracing.store.text_search import find_question
from copilot_runtime.telemetry import semconv

LabelKind = Literal["agent", "thread", "run", "resource", "user", "model"]
RATINGS = ("up", "down")

_MODELS = (semconv.RESPONSE_MODEL, semconv.REQUEST_MODEL)
_SERVER = KINDS["server"]
"""The span kind of an MCP client's request, whose tool call is a child span."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFilter:
    """A filter of traces; unset fields match all. Times are nanoseconds since 1970."""

    trace_id: str = ""
    resource_id: str = ""
    """Traces with a span of this resource: `resource.attributes.id`, or the id of the thread."""
    thread_id: str = ""
    run_id: str = ""
    agent: str = ""
    user: str = ""
    """Traces of runs of this user."""
    model: str = ""
    """Traces with a request to this model."""
    since: int = 0
    until: int = 0
    has_error: bool | None = None
    min_duration: float = 0.0
    """Seconds."""
    rating: str = ""
    """`up` or `down`: traces with this rating."""
    text: str = ""
    """A part of the question, or of the name of a span, of a model, an error or an answer, in any
    case; or the beginning of the id of a trace, a thread or a run."""


@dataclass(slots=True, kw_only=True)
class TraceSummary:
    """A summary of a trace. Tokens and dollars are those of model requests alone."""

    trace_id: str
    name: str = ""
    start: int = 0
    end: int = 0
    thread_id: str = ""
    run_id: str = ""
    agent: str = ""
    user: str = ""
    question: str = ""
    """The beginning of the question, if content is stored."""
    spans: int = 0
    errors: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0
    unpriced: int = 0
    """Number of model requests without a known price."""
    models: list[str] = field(default_factory=list)
    error_type: str = ""
    outcome: str = ""
    rating: str = ""
    """`up` or `down` if the trace is rated; `down` if any of several ratings is."""
    has_root: bool = False
    labels: set[tuple[LabelKind, str]] = field(
        default_factory=set[tuple[LabelKind, str]], repr=False, compare=False
    )
    """Agents, threads, runs, resources, users and models of spans, besides those above, and the
    requested models: for filters."""

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
        if not isinstance(operation, str):  # another program may have written anything there
            operation = ""
        self._take_name(record, operation)
        if thread := of.get(semconv.CONVERSATION_ID):
            self.thread_id = self._label("thread", self.thread_id, thread)
        if run := of.get(semconv.RUN_ID):
            self.run_id = self._label("run", self.run_id, run)
        if (rating := of.get(semconv.FEEDBACK_RATING)) in RATINGS and self.rating != "down":
            self.rating = rating
        if user := of.get(semconv.USER_NAME):
            self.user = self._label("user", self.user, user)
        if resource := record["resource"]["attributes"].get("id"):
            self.labels.add(("resource", str(resource)))
        if operation == semconv.EXECUTE_TOOL and record["kind"] != _SERVER:
            self.tool_calls += 1
        elif operation in semconv.INFERENCES:
            self._add_model_call(of)

    def has_label(self, kind: LabelKind, value: str) -> bool:
        """Return `True` if a span has this agent, thread, run, resource, user or model."""
        return (kind, value) in self.labels or {
            "agent": self.agent,
            "thread": self.thread_id,
            "run": self.run_id,
            "user": self.user,
        }.get(kind) == value

    def _take_name(self, record: Record, operation: Any) -> None:
        """Use the name of the root span, or of the best candidate so far."""
        of = record["attributes"]
        agent = of.get(semconv.AGENT_NAME)
        # the span of the HTTP request around a run is not descriptive
        is_telling = bool(operation) or semconv.MCP_METHOD_NAME in of
        is_root = not record["parent_span_id"] and (is_telling or not self.agent)
        if is_root or (not self.has_root and (not self.name or operation == semconv.INVOKE_AGENT)):
            self.name = record["name"]
            self.outcome = str(of.get(semconv.RUN_OUTCOME) or self.outcome)
            self.has_root = is_root and is_telling
            content = record.get("content", {}).get(semconv.INPUT_MESSAGES)
            self.question = find_question(content) or self.question
            if agent:
                former, self.agent = self.agent, str(agent)
                self._label("agent", self.agent, former or self.agent)
        elif agent:
            self.agent = self._label("agent", self.agent or str(agent), agent)
            content = record.get("content", {}).get(semconv.INPUT_MESSAGES)
            self.question = self.question or find_question(content)

    def _label(self, kind: LabelKind, first: str, value: Any) -> str:
        """Return the first value; add further ones as labels."""
        if value == first:
            return first
        if not first and kind != "agent":
            return str(value)
        self.labels.add((kind, str(value)))
        return first

    def _add_model_call(self, of: dict[str, Any]) -> None:
        self.model_calls += 1
        self.input_tokens += read_count(of.get(semconv.USAGE_INPUT_TOKENS)) or 0
        self.output_tokens += read_count(of.get(semconv.USAGE_OUTPUT_TOKENS)) or 0
        dollars = read_cost(of)
        if dollars is None:
            self.unpriced += 1
        else:
            self.dollars += dollars
        names = [str(name) for key in _MODELS if (name := of.get(key))]
        self.labels.update(("model", name) for name in names)
        model = names[0] if names else ""
        if model and model not in self.models:
            self.models.append(model)


def count_spans(trace_id: str, records: Iterable[Record]) -> TraceSummary:
    """Summarize a trace from its spans in arrival order."""
    summary = TraceSummary(trace_id=trace_id)
    for record in records:
        summary.add(record)
    return summary


def copy_summary(summary: TraceSummary) -> TraceSummary:
    """Return an independent copy, unaffected by spans added to the original."""
    return replace(summary, models=[*summary.models], labels={*summary.labels})


def summarize_trace(records: Sequence[Record]) -> TraceSummary | None:
    """Summarize a trace; return None if there are no spans."""
    return count_spans(records[0]["trace_id"], records) if records else None


def encode_summary(summary: TraceSummary) -> dict[str, Any]:
    """Encode a trace summary. Times are nanoseconds since 1970, the duration is in seconds."""
    return {
        "trace_id": summary.trace_id,
        "name": summary.name,
        "agent": summary.agent,
        "user": summary.user,
        "question": summary.question,
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


def split_traces(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Group spans by the ids of their traces, in the order of arrival."""
    traces: dict[str, list[Record]] = {}
    for record in records:
        traces.setdefault(record["trace_id"], []).append(record)
    return traces


def sort_spans(records: Iterable[Record]) -> list[Record]:
    """Sort spans by start, keeping the arrival order of equal starts."""
    return sorted(records, key=lambda record: record["start_time_unix_nano"])


def match_summary(summary: TraceSummary, filter: TraceFilter) -> bool:
    """Return True if a trace matches a filter, ignoring the filter's text."""
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
    if filter.rating and summary.rating != filter.rating:
        return False
    return all(
        any(summary.has_label(kind, value) for kind, value in options)
        for options in list_labels(filter)
    )


def list_labels(filter: TraceFilter) -> Sequence[Sequence[tuple[LabelKind, str]]]:
    """Return lists of labels for a filter: a trace must have one label of each list."""
    resource = filter.resource_id
    thread = resource.removeprefix("common.Conversation.")
    labels: Sequence[Sequence[tuple[LabelKind, str]]] = (
        (("thread", filter.thread_id),),
        (("run", filter.run_id),),
        (("agent", filter.agent),),
        (("user", filter.user),),
        (("model", filter.model),),
        (("resource", resource), ("thread", resource), ("thread", thread)),
    )
    return [options for options in labels if options[0][1]]


_AGO = re.compile(r"(\d{1,6})([smhdw])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_TEXTS = ("trace_id", "resource_id", "thread_id", "run_id", "agent", "user", "model", "text")
_LONGEST = 1_000
_LAST_TIME = 2**63 - 1
"""The largest integer of SQLite, which as nanoseconds is a time in 2262."""

NAMES = (*_TEXTS, "rating", "since", "until", "has_error", "min_duration")
"""The parameter names of a filter: the fields of `TraceFilter`."""


def parse_filter(values: Mapping[str, str]) -> TraceFilter:
    """Parse a filter from texts by parameter name. Raises `Misuse` for an invalid value."""
    texts = {name: values.get(name, "") for name in _TEXTS}
    for name, text in texts.items():
        if len(text) > _LONGEST:
            raise Misuse(f"{name} has {len(text)} characters; {_LONGEST} are allowed.")
    return TraceFilter(
        **texts,
        since=parse_time(values.get("since", ""), "since"),
        until=parse_time(values.get("until", ""), "until"),
        rating=_parse_rating(values.get("rating", "")),
        has_error=_parse_flag(values.get("has_error", "")),
        min_duration=parse_seconds(values.get("min_duration", ""), "min_duration"),
    )


def parse_time(text: str, name: str, now: int | None = None) -> int:
    """Parse a time to nanoseconds since 1970; 0 for an empty text. Raises `Misuse`.

    The text is an age such as `90s`, `15m`, `2h`, `7d` or `1w`, an ISO 8601 date or time (UTC
    unless it has an offset), or a number of seconds since 1970. Times after 2262 are limited to
    the largest integer of SQLite.
    """
    text = text.strip()
    if not text:
        return 0
    if found := _AGO.fullmatch(text):
        ago = int(found[1]) * _SECONDS[found[2]] * 10**9
        return max(1, (time_ns() if now is None else now) - ago)
    if text.isdecimal() and text.isascii() and len(text) in range(9, 20):
        return min(int(text) * 10**9 if len(text) < 13 else int(text), _LAST_TIME)
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return min(max(1, int(moment.timestamp() * 1_000_000) * 1_000), _LAST_TIME)
    except (ValueError, OverflowError):
        raise Misuse(
            f"{name} is {text[:40]!r}; it is a time ago, such as 15m, 2h or 7d, or a time such as "
            "2026-01-31T12:00:00Z."
        ) from None


def parse_seconds(text: str, name: str) -> float:
    """Parse seconds with an optional suffix `s` or `ms`; 0 for an empty text. Raises `Misuse`."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s)?", text.strip(), re.ASCII)
    if not text.strip():
        return 0.0
    if found is None:
        raise Misuse(f"{name} is {text[:40]!r}; it is a number of seconds, such as 2.5 or 800ms.")
    return float(found[1]) / (1000 if found[2] == "ms" else 1)


def _parse_rating(text: str) -> str:
    rating = text.strip().lower()
    if rating and rating not in RATINGS:
        raise Misuse(f"rating is {text[:40]!r}; it is up or down.")
    return rating


def _parse_flag(text: str) -> bool | None:
    match text.strip().lower():
        case "":
            return None
        case "true" | "1" | "yes":
            return True
        case "false" | "0" | "no":
            return False
        case _:
            raise Misuse(f"has_error is {text[:40]!r}; it is true or false.")
