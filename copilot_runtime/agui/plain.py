"""Events of AG-UI that mean one of ours, or nothing, whatever came before them."""

from collections.abc import Callable
from typing import Literal

from copilot_runtime.agui.messages import decode_messages
from copilot_runtime.events import (
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
from copilot_runtime.jsonvalue import JsonObject, optional_text, require_list, require_text

_ROLES: dict[str, Literal["user", "system", "developer"]] = {
    "user": "user",
    "system": "system",
    "developer": "developer",
}
_SUBAGENTS: dict[str, Literal["started", "finished", "failed"]] = {
    "SUBAGENT_STARTED": "started",
    "SUBAGENT_FINISHED": "finished",
    "SUBAGENT_ERROR": "failed",
}


def _text_start(event: JsonObject, kind: str) -> Event:
    return TextMessageStart(
        message_id=require_text(event, "messageId", kind),
        role=_ROLES.get(str(event.get("role")), "assistant"),
        agent=optional_text(event, "name", kind),
    )


def _text_content(event: JsonObject, kind: str) -> Event | None:
    id, delta = require_text(event, "messageId", kind), optional_text(event, "delta", kind)
    return TextMessageContent(message_id=id, content=delta) if delta else None


def _text_end(event: JsonObject, kind: str) -> Event:
    return TextMessageEnd(message_id=require_text(event, "messageId", kind))


def _call_args(event: JsonObject, kind: str) -> Event | None:
    id, delta = require_text(event, "toolCallId", kind), optional_text(event, "delta", kind)
    return ActionExecutionArgs(call_id=id, delta=delta) if delta else None


def _call_end(event: JsonObject, kind: str) -> Event:
    return ActionExecutionEnd(call_id=require_text(event, "toolCallId", kind))


def _thought_content(event: JsonObject, kind: str) -> Event | None:
    id, delta = require_text(event, "messageId", kind), optional_text(event, "delta", kind)
    return ReasoningContent(message_id=id, content=delta) if delta else None


def _signature(event: JsonObject, kind: str) -> Event:
    return ReasoningSignature(
        entity_id=require_text(event, "entityId", kind),
        value=require_text(event, "encryptedValue", kind),
        of="call" if event.get("subtype") == "tool-call" else "message",
    )


def _messages(event: JsonObject, kind: str) -> Event:
    where = f"{kind}.messages"
    return MessagesSnapshot(
        messages=decode_messages(require_list(event.get("messages"), where), where)
    )


def _step_started(event: JsonObject, kind: str) -> Event:
    return StepStarted(name=require_text(event, "stepName", kind))


def _step_finished(event: JsonObject, kind: str) -> Event:
    return StepFinished(name=require_text(event, "stepName", kind))


def _subagent(event: JsonObject, kind: str) -> Event:
    return Subagent(
        subagent_id=require_text(event, "subagentRunId", kind),
        status=_SUBAGENTS[kind],
        name=optional_text(event, "name", kind),
        result=event.get("result"),
        message=optional_text(event, "message", kind),
    )


def _custom(event: JsonObject, kind: str) -> Event:
    return Custom(name=require_text(event, "name", kind), value=event.get("value"))


def _raw(event: JsonObject, kind: str) -> Event:
    return Raw(event=event.get("event"), source=optional_text(event, "source", kind))


def _nothing(_: JsonObject, __: str) -> None:
    return None


PLAIN: dict[str, Callable[[JsonObject, str], Event | None]] = {
    "TEXT_MESSAGE_START": _text_start,
    "TEXT_MESSAGE_CONTENT": _text_content,
    "TEXT_MESSAGE_END": _text_end,
    "TOOL_CALL_ARGS": _call_args,
    "TOOL_CALL_END": _call_end,
    "REASONING_MESSAGE_CONTENT": _thought_content,
    "REASONING_ENCRYPTED_VALUE": _signature,
    "MESSAGES_SNAPSHOT": _messages,
    "STEP_STARTED": _step_started,
    "STEP_FINISHED": _step_finished,
    "SUBAGENT_STARTED": _subagent,
    "SUBAGENT_FINISHED": _subagent,
    "SUBAGENT_ERROR": _subagent,
    "CUSTOM": _custom,
    "RAW": _raw,
    "RUN_STARTED": _nothing,  # the runtime says so itself
    "REASONING_START": _nothing,  # a thought begins with its message
    # of before 0.0.45; clients take them, and show nothing
    "THINKING_START": _nothing,
    "THINKING_TEXT_MESSAGE_START": _nothing,
    "THINKING_TEXT_MESSAGE_CONTENT": _nothing,
    "THINKING_TEXT_MESSAGE_END": _nothing,
    "THINKING_END": _nothing,
}
"""Type → what reads it. It raises `Misuse` for an event that lacks something."""
