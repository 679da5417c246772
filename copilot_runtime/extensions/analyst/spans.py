"""Spans of the data analyst: preparation, output check and memory update.

The semantic conventions do not define the first three, so their names are our own.
"""

from collections.abc import Sequence

from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.context import SpanContext
from copilot_runtime.telemetry.span import NO_SPAN, Span
from copilot_runtime.telemetry.telemetry import Telemetry


def start_request_span(
    telemetry: Telemetry, *, thread_id: str, user: str | None, parent: SpanContext | None = None
) -> Span:
    """Start the span of a question to the analyst's own routes: `copilot.request`."""
    return telemetry.start_span(
        semconv.ANSWER_REQUEST,
        parent=parent,
        attributes={
            semconv.OPERATION_NAME: semconv.ANSWER_REQUEST,
            semconv.CONVERSATION_ID: thread_id or None,
            semconv.USER_NAME: user,
        },
    )


def start_prepare_span(parent: Span) -> Span:
    """Start the span of the preparation before the model: `prepare_request`."""
    return _start(parent, semconv.PREPARE_REQUEST)


def describe_request(
    span: Span, *, classification: str, confidence: float, skills: Sequence[str], dataset: str = ""
) -> None:
    """Set the class of a question, and the skills and data set selected for it."""
    span.set_attributes(
        {
            semconv.REQUEST_CLASS: classification,
            semconv.REQUEST_CONFIDENCE: confidence,
            semconv.REQUEST_SKILLS: [*skills] or None,
            semconv.REQUEST_DATASET: dataset or None,
        }
    )


def record_output_check(parent: Span, start_time: int, redactions: int) -> None:
    """Add the finished span of the output guard of a text: `sanitize_output`."""
    if not parent.is_recording or not start_time:
        return
    span = parent.start_child(
        semconv.SANITIZE_OUTPUT,
        attributes={
            semconv.OPERATION_NAME: semconv.SANITIZE_OUTPUT,
            semconv.REDACTION_COUNT: redactions,
        },
        start_time=start_time,
    )
    span.end()


def start_memory_span(telemetry: Telemetry, request: Span, store: str) -> Span:
    """Start the span of the memory update after a question: `upsert_memory`.

    It outlives the question, so it is the root of its own trace, with a link to the question's.
    """
    if not request.is_recording:
        return NO_SPAN
    span = telemetry.start_span(
        semconv.UPSERT_MEMORY,
        attributes={
            semconv.OPERATION_NAME: semconv.UPSERT_MEMORY,
            semconv.MEMORY_STORE_ID: store,
        },
    )
    span.add_link(request.context)
    return span


def _start(parent: Span, operation: str) -> Span:
    if not parent.is_recording:
        return NO_SPAN
    return parent.start_child(operation, attributes={semconv.OPERATION_NAME: operation})
