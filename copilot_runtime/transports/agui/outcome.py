"""What a run leaves at its end: open questions, and what it cost."""

from collections.abc import Mapping
from typing import Any

from copilot_runtime.events import Interrupt, Usage


def drop_none(**values: Any) -> dict[str, Any]:
    """Leave out what is None: clients refuse most nulls."""
    return {key: value for key, value in values.items() if value is not None}


def interrupt(event: Interrupt) -> dict[str, Any]:
    """Return an interrupt as the outcome of a run has it."""
    metadata = event.metadata
    if metadata is None and not _is_interrupt(event.value):
        metadata = event.value
    if metadata is not None and not isinstance(metadata, Mapping):
        metadata = {"value": metadata}  # clients want an object
    return drop_none(
        id=event.interrupt_id,
        reason=event.reason,
        message=event.message,
        toolCallId=event.call_id,
        responseSchema=event.response_schema,
        expiresAt=event.expires_at,
        metadata=metadata,
    )


def usage(event: Usage) -> dict[str, Any]:
    """Return what one call of a model cost, in tokens."""
    return {
        **({"provider": event.provider} if event.provider else {}),
        "model": event.model,
        "inputTokens": event.input_tokens,
        "outputTokens": event.output_tokens,
        "totalTokens": event.input_tokens + event.output_tokens,
        "reasoningTokens": event.reasoning_tokens,
        "cachedInputTokens": event.cached_tokens,
    }


def _is_interrupt(value: Any) -> bool:
    """Say whether this is AG-UI's own interrupt, all of which is in the event already."""
    return isinstance(value, Mapping) and "id" in value and "reason" in value
