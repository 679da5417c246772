"""Decode the AG-UI events of a remote agent.

It follows `@ag-ui/client` 0.0.59 and 1.0.0, but leniently: nulls count as absent, and empty
chunks and unknown events are ignored. `event_order` checks the order of the events.
"""

import logging
from collections.abc import Callable
from typing import Any, Literal

from copilot_runtime.agui.chunks import CHUNKS, ChunkExpander
from copilot_runtime.agui.messages import decode_messages
from copilot_runtime.agui.outcome import (
    decode_cancellation,
    decode_run_end,
    decode_run_error,
    decode_usage,
)
from copilot_runtime.agui.parts import find_parts, flatten_result
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Activity,
    AgentState,
    Custom,
    Event,
    MessagesSnapshot,
    Raw,
    ReasoningContent,
    ReasoningEnd,
    ReasoningSignature,
    ReasoningStart,
    StepFinished,
    StepStarted,
    Subagent,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.api.messages import ActionExecutionMessage, ActivityMessage
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import CopilotError, IncompleteStream, Misuse
from copilot_runtime.base.jsonpatch import apply_patch
from copilot_runtime.base.jsontext import dumps, loads, mark_halves
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    as_objects,
    get_object,
    optional_text,
    require_list,
    require_object,
    require_text,
)

logger = logging.getLogger(__name__)

_BESIDE = frozenset({"RAW", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA", "REASONING_ENCRYPTED_VALUE"})
"""Events that do not end an open sequence of chunks, as in the client."""


class EventDecoder:
    """Decodes the events of a stream; `agent` is the name in errors and states.

    `state` is the agent's state before the run. `ended` is `True` after the last relevant event,
    and `failure` is the error of an unsuccessful run. A stream may contain several runs, as
    `verifyEvents` allows: after RUN_FINISHED, the decoder is `finished` until the next RUN_STARTED.
    At the end of the stream, call `finish`.
    """

    def __init__(self, agent: str, state: Any, run: RunInput) -> None:
        self.ended = False
        self.finished = False
        self.failure: CopilotError | None = None
        self._end: JsonObject = {}
        """The RUN_FINISHED, whose outcome counts only for the last run."""
        self._agent = agent
        self._run = run
        self._state = state
        self._names: dict[str, str] = {}
        self._activities: dict[str, Any] | None = None
        self._chunks = ChunkExpander()
        self._open_thoughts: dict[str, None] = {}
        self._finished_thoughts: list[str] = []  # complete, but a signature may follow
        self._open = False  # whether chunks or thoughts end before the next event
        self._unknown_types: set[str] = set()
        self._broken_activities: set[str] = set()  # those already logged
        self._events: list[Event] = []

    def read(self, payloads: list[bytes]) -> list[Event]:
        """Return the events of a block of server-sent events."""
        events = self._events = []
        for payload in payloads:
            try:
                event = loads(payload, mark_halves)
            except ValueError:
                self._fail("An event is not valid JSON.", payload)
                break
            try:
                # nearly all events are this one
                if event["type"] == "TEXT_MESSAGE_CONTENT" and not self._open:
                    id, delta = event["messageId"], event["delta"]
                    if delta and type(id) is str and type(delta) is str:
                        events.append(TextMessageContent(message_id=id, content=delta))
                        continue
            except (KeyError, TypeError):
                pass  # `_decode` reports what is missing
            try:
                self._decode(event)
            except Misuse as error:
                self._fail(error.message, payload)
            if self.ended:
                break
        return events

    def finish(self) -> list[Event]:
        """Return the events of the outcome, at the end of the stream."""
        self._events = []
        if self.finished and not self.ended:
            self._finish()
        return self._events

    def take(self, event: Any) -> list[Event]:
        """Return the events for one decoded event, an object with the keys of the wire format."""
        events = self._events = []
        try:
            self._decode(event)
        except Misuse as error:
            self._fail(error.message, dumps(event))
        return events

    def _fail(self, reason: str, payload: bytes) -> None:
        start = payload[:200].decode(errors="replace")
        self.ended = True
        self.failure = IncompleteStream(
            f"The agent {self._agent!r} sent something that cannot be read. {reason[:500]}",
            hint=f"It sent {start!r}.",
        )

    def _decode(self, event: Any) -> None:
        if not isinstance(event, dict):
            raise Misuse("An event is not an object.")
        kind = str(event.get("type"))
        if self.finished:
            self._continue(event, kind)
        elif kind in CHUNKS:
            for full in self._chunks.expand(event):
                self._decode_full(full["type"], full)
        else:
            if self._chunks.open and kind not in _BESIDE:
                for full in self._chunks.close():
                    self._decode_full(full["type"], full)
            self._decode_full(kind, event)
        self._open = bool(self._chunks.open or self._finished_thoughts or self.finished)

    def _continue(self, event: JsonObject, kind: str) -> None:
        """Begin the next run of the stream; any other event after RUN_FINISHED is ignored."""
        if kind != "RUN_STARTED":
            self._finish()
            return
        self.finished = False
        self._events += decode_usage(self._end)
        self._add_questions(as_objects(get_object(event, "input").get("messages")))

    def _add_questions(self, sent: list[JsonObject]) -> None:
        """Add the new questions in the input of a run, as clients do."""
        ids = {message.id for message in self._run.messages}
        for message in sent:
            id, content = message.get("id"), message.get("content")
            is_new = message.get("role") == "user" and id not in ids
            if is_new and isinstance(id, str) and isinstance(content, str):
                self._events += [
                    TextMessageStart(message_id=id, role="user"),
                    TextMessageContent(message_id=id, content=content),
                    TextMessageEnd(message_id=id),
                ]

    def _finish(self) -> None:
        try:
            self._events += decode_run_end(self._end)
            self.failure = decode_cancellation(self._end)
            self.ended = True
        except Misuse as error:
            self._fail(error.message, dumps(self._end))

    def _decode_full(self, kind: str, event: JsonObject) -> None:
        if self._finished_thoughts and kind not in _BESIDE:
            self._end_thoughts()
        if read := PLAIN_DECODERS.get(kind):
            if (plain := read(event, kind)) is not None:
                self._events.append(plain)
            return
        match kind:
            case "TOOL_CALL_START":
                self._decode_call_start(event, kind)
            case "TOOL_CALL_RESULT":
                self._decode_call_result(event, kind)
            case "STATE_SNAPSHOT":
                self._set_state(event.get("snapshot"))
            case "STATE_DELTA":
                self._patch_state(event, kind)
            case "ACTIVITY_SNAPSHOT":
                self._set_activity(event, kind)
            case "ACTIVITY_DELTA":
                self._patch_activity(event, kind)
            case "REASONING_MESSAGE_START":
                id = require_text(event, "messageId", kind)
                self._open_thoughts[id] = None
                self._events.append(ReasoningStart(message_id=id))
            case "REASONING_MESSAGE_END":
                id = require_text(event, "messageId", kind)
                self._open_thoughts.pop(id, None)
                self._finished_thoughts.append(id)
            case "REASONING_END":
                self._finished_thoughts += self._open_thoughts
                self._open_thoughts.clear()
                self._end_thoughts()
            case "RUN_FINISHED":
                self.finished, self._end = True, event
            case "RUN_ERROR":
                self._events += decode_usage(event)
                self.failure = decode_run_error(event)
                self.ended = True
            case _:
                self._warn_unknown(kind)

    def _warn_unknown(self, kind: str) -> None:
        if kind not in self._unknown_types:
            self._unknown_types.add(kind)
            logger.warning("Agent %r: events of type %.50r are left out", self._agent, kind)

    def _decode_call_start(self, event: JsonObject, kind: str) -> None:
        id = require_text(event, "toolCallId", kind)
        name = require_text(event, "toolCallName", kind)
        parent_id = optional_text(event, "parentMessageId", kind)
        self._names[id] = name
        self._events.append(ActionExecutionStart(call_id=id, name=name, parent_id=parent_id))

    def _decode_call_result(self, event: JsonObject, kind: str) -> None:
        id, content = require_text(event, "toolCallId", kind), event.get("content")
        parts = find_parts(content)
        message_id = optional_text(event, "messageId", kind)
        self._events.append(
            ActionExecutionResult(
                call_id=id,
                name=self._find_call_name(id),
                result=flatten_result(content, parts),
                parts=parts,
                message_id=message_id,
            )
        )

    def _find_call_name(self, call_id: str) -> str:
        if call_id not in self._names:
            for message in self._run.messages:
                if isinstance(message, ActionExecutionMessage):
                    self._names.setdefault(message.id, message.name)
        return self._names.get(call_id, "")

    def _set_state(self, state: Any) -> None:
        self._state = state
        run = self._run
        self._events.append(
            AgentState(agent=self._agent, state=state, thread_id=run.thread_id, run_id=run.run_id)
        )

    def _patch_state(self, event: JsonObject, kind: str) -> None:
        operations = require_list(event.get("delta"), f"{kind}.delta")
        before: Any = {} if self._state is None else self._state
        try:
            self._set_state(apply_patch(before, operations))
        except ValueError as error:
            raise Misuse(f"A change of its state does not apply: {error}.") from None

    def _set_activity(self, event: JsonObject, kind: str) -> None:
        id, name = require_text(event, "messageId", kind), require_text(event, "activityType", kind)
        content = require_object(event.get("content"), f"{kind}.content")
        replace = event.get("replace") is not False
        activities = self._get_activities()
        if replace or id not in activities:
            activities[id] = content
        self._events.append(
            Activity(message_id=id, activity_type=name, content=content, replace=replace)
        )

    def _patch_activity(self, event: JsonObject, kind: str) -> None:
        id, name = require_text(event, "messageId", kind), require_text(event, "activityType", kind)
        operations = require_list(event.get("patch"), f"{kind}.patch")
        activities = self._get_activities()
        try:
            activities[id] = apply_patch(activities[id], operations)
        except (KeyError, ValueError) as error:  # clients drop such patches, too
            if id not in self._broken_activities:
                self._broken_activities.add(id)
                logger.warning("Agent %r: patch of activity %r dropped: %s", self._agent, id, error)
        else:
            self._events.append(Activity(message_id=id, activity_type=name, content=activities[id]))

    def _get_activities(self) -> dict[str, Any]:
        if self._activities is None:
            activities = (one for one in self._run.messages if isinstance(one, ActivityMessage))
            self._activities = {message.id: message.content for message in activities}
        return self._activities

    def _end_thoughts(self) -> None:
        self._events += [ReasoningEnd(message_id=id) for id in self._finished_thoughts]
        self._finished_thoughts.clear()


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


PLAIN_DECODERS: dict[str, Callable[[JsonObject, str], Event | None]] = {
    "TEXT_MESSAGE_START": _decode_text_start,
    "TEXT_MESSAGE_CONTENT": _decode_piece(
        "messageId", lambda id, text: TextMessageContent(message_id=id, content=text)
    ),
    "TEXT_MESSAGE_END": lambda e, k: TextMessageEnd(message_id=require_text(e, "messageId", k)),
    "TOOL_CALL_ARGS": _decode_piece(
        "toolCallId", lambda id, text: ActionExecutionArgs(call_id=id, delta=text)
    ),
    "TOOL_CALL_END": lambda e, k: ActionExecutionEnd(call_id=require_text(e, "toolCallId", k)),
    "REASONING_MESSAGE_CONTENT": _decode_piece(
        "messageId", lambda id, text: ReasoningContent(message_id=id, content=text)
    ),
    "REASONING_ENCRYPTED_VALUE": _decode_signature,
    "MESSAGES_SNAPSHOT": _decode_messages_snapshot,
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
