"""User feedback on answers (thumbs up or down), recorded on the trace of the run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from copilot_runtime.base.errors import NotFound
from copilot_runtime.extensions.tracing.store.records import Record, decode_span
from copilot_runtime.extensions.tracing.store.store import TraceStore
from copilot_runtime.extensions.tracing.store.traces import RATINGS, TraceFilter
from copilot_runtime.extensions.tracing.tree import build_tree
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.span import Span, SpanEvent
from copilot_runtime.telemetry.telemetry import Telemetry
from copilot_runtime.transports.body import BadRequest

_LONGEST = 10_000
_LONGEST_ID = 1_000
_EVALUATION = "feedback"
"""The evaluation name of user feedback."""
_MOST_CANDIDATES = 20
"""Maximum number of traces searched for a run: clients choose run ids and may reuse them."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """Feedback on a run, which is identified by its trace or its run id."""

    rating: str
    comment: str = ""
    trace_id: str = ""
    run_id: str = ""


def parse_feedback(body: Mapping[str, Any]) -> Feedback:
    """Parse the feedback of a request. Raises `BadRequest`."""
    texts = {name: body.get(name) or "" for name in ("rating", "comment", "trace_id", "run_id")}
    for name, text in texts.items():
        longest = _LONGEST if name == "comment" else _LONGEST_ID
        if not isinstance(text, str) or len(text) > longest:
            raise BadRequest(f"{name} is a text of at most {longest} characters.")
    if texts["rating"] not in RATINGS:
        raise BadRequest("rating is up or down.")
    if bool(texts["trace_id"]) == bool(texts["run_id"]):
        raise BadRequest("Name the answer by trace_id or by run_id, and not by both.")
    return Feedback(**texts)


async def store_feedback(
    telemetry: Telemetry, store: TraceStore, feedback: Feedback, readers: "Readers"
) -> str:
    """Record feedback on its run, count it, and return the id of the trace.

    New feedback replaces earlier one. A comment is content, stored only if content is. Raises
    `NotFound` if there is no such run that `readers` may rate.
    """
    async with store.edits:
        return await _note_feedback(telemetry, store, feedback, readers)


async def _note_feedback(
    telemetry: Telemetry, store: TraceStore, feedback: Feedback, readers: "Readers"
) -> str:
    span, response_id = await _find_run(store, feedback, readers)
    rating = {semconv.FEEDBACK_RATING: feedback.rating}
    comment = {semconv.FEEDBACK_COMMENT: feedback.comment} if feedback.comment else {}
    content = comment if telemetry.keeps_content else {}
    if _read_feedback(span) == {**rating, **content}:
        return span.trace_id  # repeated feedback is recorded once
    span.attributes.update(rating)
    span.content.pop(semconv.FEEDBACK_COMMENT, None)
    span.content.update(content)
    span.events = [event for event in span.events if not _is_feedback(event)]
    telemetry.log_event(semconv.EVENT_FEEDBACK, rating, span=span, content=comment or None)
    telemetry.log_event(
        semconv.EVENT_EVALUATION_RESULT,
        {
            semconv.EVALUATION_NAME: _EVALUATION,
            semconv.EVALUATION_SCORE_VALUE: 1.0 if feedback.rating == "up" else 0.0,
            semconv.EVALUATION_SCORE_LABEL: feedback.rating,
            **({semconv.RESPONSE_ID: response_id} if response_id else {}),
        },
        span=span,
        content={semconv.EVALUATION_EXPLANATION: feedback.comment} if feedback.comment else None,
    )
    store.add(span)
    telemetry.record(semconv.FEEDBACK_COUNT, 1, rating)
    return span.trace_id


@dataclass(frozen=True, slots=True)
class Readers:
    """The runs that a caller may rate: those of one user or of anonymous users, or all runs."""

    user: str | None
    is_everybody: bool = False

    def allow(self, run: Record) -> bool:
        """Return True if the caller may rate a run."""
        return self.is_everybody or run["attributes"].get(semconv.USER_NAME) == self.user


async def _find_run(
    store: TraceStore, feedback: Feedback, readers: Readers
) -> tuple[Span, str | None]:
    """Return the span of the rated run, and the provider's id of its last response or None.

    A client may have used a run id twice.
    """
    trace_ids = [feedback.trace_id]
    if feedback.run_id:
        filter = TraceFilter(run_id=feedback.run_id)
        found = await store.list_traces(filter, limit=_MOST_CANDIDATES)
        trace_ids = [summary.trace_id for summary in found]
    for trace_id in trace_ids:
        spans = await store.get_trace(trace_id)
        runs = [span for span in spans if _is_run(span, feedback.run_id)]
        if not runs and readers.is_everybody:
            runs = [node.span for node in build_tree(spans)]  # of a program without runs
        for run in runs:
            if readers.allow(run):
                return decode_span(run), _find_response_id(spans, run)
    raise NotFound("There is no such trace.")


def _is_run(span: Record, run_id: str) -> bool:
    of = span["attributes"]
    return semconv.RUN_ID in of and (not run_id or of[semconv.RUN_ID] == run_id)


def _find_response_id(spans: Sequence[Record], run: Record) -> str | None:
    """Return the id of the last model response of the run itself, or None."""
    ids = [
        span["attributes"].get(semconv.RESPONSE_ID)
        for span in spans
        if span["parent_span_id"] == run["span_id"]
        and span["attributes"].get(semconv.OPERATION_NAME) == semconv.CHAT
    ]
    return ids[-1] if ids else None


def _is_feedback(event: SpanEvent) -> bool:
    """Return True if an event is earlier feedback, which new feedback replaces."""
    return event.name == semconv.EVENT_FEEDBACK or (
        event.name == semconv.EVENT_EVALUATION_RESULT
        and event.attributes.get(semconv.EVALUATION_NAME) == _EVALUATION
    )


def _read_feedback(span: Span) -> Mapping[str, Any]:
    """Return the attributes of the feedback recorded on a span."""
    names = (semconv.FEEDBACK_RATING, semconv.FEEDBACK_COMMENT)
    values = {**span.attributes, **span.content}
    return {name: values[name] for name in names if name in values}
