"""Decoders of the AG-UI events that need no state: type → function of the event and its type."""

from collections.abc import Callable
from typing import Literal

from copilot_runtime.api.events import (
    ActionExecutionArgs,
    Custom,
    Event,
    Raw,
    ReasoningContent,
    ReasoningSignature,
    StepFinished,
    StepStarted,
    Subagent,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.base.jsonvalue import JsonObject, optional_text, require_text

_ROLES = ("user", "system", "developer")
_IGNORED = (
    "RUN_STARTED",  # the runtime writes its own
    "REASONING_START",  # a thought begins with its message
    # of before 0.0.45; clients take them, and show nothing
    "THINKING_START",
    "THINKING_TEXT_MESSAGE_START",
    "THINKING_TEXT_MESSAGE_CONTENT",
    "THINKING_TEXT_MESSAGE_END",
    "THINKING_END",
)
_SUBAGENTS: dict[str, Literal["started", "finished", "failed"]] = {
    "SUBAGENT_STARTED": "started",
    "SUBAGENT_FINISHED": "finished",
    "SUBAGENT_ERROR": "failed",
}


def _decode_text_start(event: JsonObject, kind: str) -> Event:
    role = str(event.get("role"))
    return TextMessageStart(
        message_id=require_text(event, "messageId", kind),
        role=role if role in _ROLES else "assistant",
        agent=optional_text(event, "name", kind),
    )


def _decode_piece(
    key: str, build: Callable[[str, str], Event]
) -> Callable[[JsonObject, str], Event | None]:
    """Return a decoder for content events of texts or calls, with the id at `key`."""

    def decode(event: JsonObject, kind: str) -> Event | None:
        id, delta = require_text(event, key, kind), optional_text(event, "delta", kind)
        return build(id, delta) if delta else None

    return decode


def _decode_signature(event: JsonObject, kind: str) -> Event:
    return ReasoningSignature(
        entity_id=require_text(event, "entityId", kind),
        value=require_text(event, "encryptedValue", kind),
        of="call" if event.get("subtype") == "tool-call" else "message",
    )


def _decode_subagent(event: JsonObject, kind: str) -> Event:
    return Subagent(
        subagent_id=require_text(event, "subagentRunId", kind),
        status=_SUBAGENTS[kind],
        name=optional_text(event, "name", kind),
        result=event.get("result"),
        message=optional_text(event, "message", kind),
    )


PLAIN_DECODERS: dict[str, Callable[[JsonObject, str], Event | None]] = {
    "TEXT_MESSAGE_START": _decode_text_start,
    "TEXT_MESSAGE_CONTENT": _decode_piece(
        "messageId", lambda id, text: TextMessageContent(message_id=id, content=text)
    ),
    "TEXT_MESSAGE_END": lambda e, k: TextMessageEnd(message_id=require_text(e, "messageId", k)),
    "TOOL_CALL_ARGS": _decode_piece(
        "toolCallId", lambda id, text: ActionExecutionArgs(call_id=id, delta=text)
    ),
    "REASONING_MESSAGE_CONTENT": _decode_piece(
        "messageId", lambda id, text: ReasoningContent(message_id=id, content=text)
    ),
    "REASONING_ENCRYPTED_VALUE": _decode_signature,
    "STEP_STARTED": lambda e, k: StepStarted(name=require_text(e, "stepName", k)),
    "STEP_FINISHED": lambda e, k: StepFinished(name=require_text(e, "stepName", k)),
    "SUBAGENT_STARTED": _decode_subagent,
    "SUBAGENT_FINISHED": _decode_subagent,
    "SUBAGENT_ERROR": _decode_subagent,
    "CUSTOM": lambda e, k: Custom(name=require_text(e, "name", k), value=e.get("value")),
    "RAW": lambda e, k: Raw(event=e.get("event"), source=optional_text(e, "source", k)),
    **dict.fromkeys(_IGNORED, lambda _, __: None),
}
"""Event type → decoder. A decoder raises `Misuse` for a missing field."""
