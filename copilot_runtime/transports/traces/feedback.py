"""Thumbs up and down: what somebody says about an answer, noted at its trace."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from copilot_runtime.errors import NotFound
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.store.records import decode_span
from copilot_runtime.telemetry.store.store import TraceStore
from copilot_runtime.telemetry.store.traces import TraceFilter
from copilot_runtime.telemetry.telemetry import Telemetry
from copilot_runtime.telemetry.tree import build_tree
from copilot_runtime.transports.body import BadRequest

_LONGEST = 10_000
_LONGEST_ID = 1_000


@dataclass(frozen=True, slots=True)
class Feedback:
    """What is said about a run: its trace is named, or the run."""

    rating: str
    comment: str = ""
    trace_id: str = ""
    run_id: str = ""


def parse_feedback(body: Mapping[str, Any]) -> Feedback:
    """Return the feedback of a request. Raises `BadRequest`."""
    texts = {name: body.get(name) or "" for name in ("rating", "comment", "trace_id", "run_id")}
    for name, text in texts.items():
        longest = _LONGEST if name == "comment" else _LONGEST_ID
        if not isinstance(text, str) or len(text) > longest:
            raise BadRequest(f"{name} is a text of at most {longest} characters.")
    if texts["rating"] not in ("up", "down"):
        raise BadRequest("rating is up or down.")
    if bool(texts["trace_id"]) == bool(texts["run_id"]):
        raise BadRequest("Name the answer by trace_id or by run_id, and not by both.")
    return Feedback(**texts)


async def store_feedback(telemetry: Telemetry, store: TraceStore, feedback: Feedback) -> str:
    """Note feedback at the first span of its trace, count it, and return the id of the trace.

    The last one counts. A comment is content: it is kept where content is. Raises `NotFound`.
    """
    trace_id = feedback.trace_id or await _find_trace(store, feedback.run_id)
    roots = build_tree(await store.get_trace(trace_id)) if trace_id else []
    if not roots:
        raise NotFound("There is no such trace.")
    span = decode_span(roots[0].span)
    rating = {semconv.FEEDBACK_RATING: feedback.rating}
    comment = {semconv.FEEDBACK_COMMENT: feedback.comment} if feedback.comment else None
    span.attributes.update(rating)
    span.content.pop(semconv.FEEDBACK_COMMENT, None)
    if comment is not None and telemetry.keeps_content:
        span.content.update(comment)
    telemetry.log_event(semconv.EVENT_FEEDBACK, rating, span=span, content=comment)
    telemetry.log_event(
        semconv.EVENT_EVALUATION_RESULT,
        {
            semconv.EVALUATION_NAME: "feedback",
            semconv.EVALUATION_SCORE_VALUE: 1.0 if feedback.rating == "up" else 0.0,
            semconv.EVALUATION_SCORE_LABEL: feedback.rating,
        },
        span=span,
        content={semconv.EVALUATION_EXPLANATION: feedback.comment} if feedback.comment else None,
    )
    store.add(span)
    telemetry.record(semconv.FEEDBACK_COUNT, 1, rating)
    return trace_id


async def _find_trace(store: TraceStore, run_id: str) -> str:
    found = await store.list_traces(TraceFilter(run_id=run_id), limit=1)
    return found[0].trace_id if found else ""
