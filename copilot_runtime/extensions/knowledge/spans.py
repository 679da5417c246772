"""Spans of updates of sources and indexes, and of uploads.

The semantic conventions define none of these, so the names are ours. Each span is a child of the
current one, or the root of a trace.
"""

from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.span import NO_SPAN, Span, find_current_span
from copilot_runtime.telemetry.telemetry import Telemetry


def start_ingest_span(telemetry: Telemetry) -> Span:
    """Begin the span of an update of sources and indexes: `ingest`."""
    return _start(telemetry, semconv.INGEST)


def start_ingest_step_span(step: str) -> Span:
    """Begin the span of a step of an update, or of taking in a file: `ingest_step {step}`."""
    parent = find_current_span()
    if not parent.is_recording:
        return NO_SPAN
    return parent.start_child(
        f"{semconv.INGEST_STEP} {step}",
        attributes={semconv.OPERATION_NAME: semconv.INGEST_STEP, semconv.INGEST_STEP_NAME: step},
    )


def start_upload_span(telemetry: Telemetry, *, name: str, size: int, thread_id: str) -> Span:
    """Begin the span of a file that a user has attached: `upload`. `size` is in bytes."""
    span = _start(telemetry, semconv.UPLOAD)
    span.set_attributes(
        {semconv.UPLOAD_BYTES: size, semconv.CONVERSATION_ID: thread_id or None},
    )
    span.set_content({semconv.UPLOAD_NAME: name})
    return span


def describe_upload(
    span: Span, *, state: str, media_type: str, chunks: int, message: str = ""
) -> None:
    """Set the result of an upload; `message` is the reason of a refusal or of a gap."""
    span.set_attributes(
        {
            semconv.UPLOAD_STATE: state,
            semconv.UPLOAD_MEDIA_TYPE: media_type or None,
            semconv.UPLOAD_CHUNKS: chunks,
        }
    )
    span.set_content({semconv.UPLOAD_MESSAGE: message or None})


def _start(telemetry: Telemetry, operation: str) -> Span:
    parent = find_current_span()
    return (parent.telemetry or telemetry).start_span(
        operation, parent=parent, attributes={semconv.OPERATION_NAME: operation}
    )
