"""Events of AG-UI that mean one of ours, or nothing, whatever came before them."""

from collections.abc import Callable
from typing import Literal

from copilot_runtime.agui.messages import decode_messages
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    Custom,
    Event,
    MessagesSnapshot,
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
from copilot_runtime.base.jsonvalue import JsonObject, optional_text, require_list, require_text

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


def _decode_text_content(event: JsonObject, kind: str) -> Event | None:
    id, delta = require_text(event, "messageId", kind), optional_text(event, "delta", kind)
    return TextMessageContent(message_id=id, content=delta) if delta else None


def _decode_call_args(event: JsonObject, kind: str) -> Event | None:
    id, delta = require_text(event, "toolCallId", kind), optional_text(event, "delta", kind)
    return ActionExecutionArgs(call_id=id, delta=delta) if delta else None


def _decode_thought_content(event: JsonObject, kind: str) -> Event | None:
    id, delta = require_text(event, "messageId", kind), optional_text(event, "delta", kind)
    return ReasoningContent(message_id=id, content=delta) if delta else None


def _decode_signature(event: JsonObject, kind: str) -> Event:
    return ReasoningSignature(
        entity_id=require_text(event, "entityId", kind),
        value=require_text(event, "encryptedValue", kind),
        of="call" if event.get("subtype") == "tool-call" else "message",
    )


def _decode_messages_snapshot(event: JsonObject, kind: str) -> Event:
    where = f"{kind}.messages"
    return MessagesSnapshot(
        messages=decode_messages(require_list(event.get("messages"), where), where)
    )


def _decode_subagent(event: JsonObject, kind: str) -> Event:
    return Subagent(
        subagent_id=require_text(event, "subagentRunId", kind),
        status=_SUBAGENTS[kind],
        name=optional_text(event, "name", kind),
        result=event.get("result"),
        message=optional_text(event, "message", kind),
    )


def _decode_custom(event: JsonObject, kind: str) -> Event:
    return Custom(name=require_text(event, "name", kind), value=event.get("value"))


PLAIN_DECODERS: dict[str, Callable[[JsonObject, str], Event | None]] = {
    "TEXT_MESSAGE_START": _decode_text_start,
    "TEXT_MESSAGE_CONTENT": _decode_text_content,
    "TEXT_MESSAGE_END": lambda e, k: TextMessageEnd(message_id=require_text(e, "messageId", k)),
    "TOOL_CALL_ARGS": _decode_call_args,
    "TOOL_CALL_END": lambda e, k: ActionExecutionEnd(call_id=require_text(e, "toolCallId", k)),
    "REASONING_MESSAGE_CONTENT": _decode_thought_content,
    "REASONING_ENCRYPTED_VALUE": _decode_signature,
    "MESSAGES_SNAPSHOT": _decode_messages_snapshot,
    "STEP_STARTED": lambda e, k: StepStarted(name=require_text(e, "stepName", k)),
    "STEP_FINISHED": lambda e, k: StepFinished(name=require_text(e, "stepName", k)),
    "SUBAGENT_STARTED": _decode_subagent,
    "SUBAGENT_FINISHED": _decode_subagent,
    "SUBAGENT_ERROR": _decode_subagent,
    "CUSTOM": _decode_custom,
    "RAW": lambda e, k: Raw(event=e.get("event"), source=optional_text(e, "source", k)),
    **dict.fromkeys(_IGNORED, lambda _, __: None),
}
"""Type → what reads it. It raises `Misuse` for an event that lacks something."""
