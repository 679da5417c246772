"""Decode the AG-UI events of a remote agent.

It follows `@ag-ui/client` 0.0.59 and 1.0.0, but leniently: nulls count as absent, and empty
chunks and unknown events are ignored, and so are events that cannot be read, unless they may be
of a call. `event_order` checks the order of the events.
"""

import logging
from typing import Any

from copilot_runtime.agui.chunks import CHUNKS, ChunkExpander
from copilot_runtime.agui.messages import decode_messages
from copilot_runtime.agui.outcome import (
    decode_cancellation,
    decode_run_end,
    decode_run_error,
    decode_usage,
)
from copilot_runtime.agui.parts import find_parts, flatten_result
from copilot_runtime.agui.plain_events import PLAIN_DECODERS
from copilot_runtime.api.events import (
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Activity,
    AgentState,
    Event,
    MessagesSnapshot,
    ReasoningEnd,
    ReasoningStart,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.api.messages import ActionExecutionMessage, ActivityMessage, Message
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

_NEEDED = ("TOOL_CALL_", "RUN_", "STATE_DELTA")
"""Beginnings of the types without which a run cannot go on: of calls, its own start and end, and
changes of the state, to which the next ones are relative."""

_SNAPSHOT_MESSAGES = 20_000
"""Maximum number of messages in a snapshot; more would stop the event loop."""

_TEXTS = frozenset({"TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CHUNK"})
"""The types of events without which an answer may have no text."""


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
        self.untyped: JsonObject = {}
        """The last object without a type, which may be an error of a gateway."""
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
        self._is_strict = False
        self._open_calls: set[str] = set()
        self._logged: set[str] = set()  # types of events, and ids of activities
        self._has_text = self._lacks_text = False
        self._events: list[Event] = []

    def read(self, payloads: list[bytes]) -> list[Event]:
        """Return the events of a block of server-sent events.

        One that cannot be read is left out. If it may be of a call, the run fails instead, because
        a call must not be executed with a part of its arguments.
        """
        events = self._events = []
        for payload in payloads:
            event: Any = None
            try:
                event = loads(payload, mark_halves)
                # nearly all events are this one
                if event["type"] == "TEXT_MESSAGE_CONTENT" and not self._open:
                    id, delta = event["messageId"], event["delta"]
                    if delta and type(id) is str and type(delta) is str:
                        events.append(TextMessageContent(message_id=id, content=delta))
                        continue
            except (KeyError, TypeError):
                pass  # `_decode` reports what is missing
            except ValueError:
                self._leave_out("An event is not valid JSON.", None, payload)
                if self.ended:
                    break
                continue
            try:
                self._decode(event)
            except Misuse as error:
                self._leave_out(error.message, event, payload)
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
        """Return the events for one decoded event, an object with the keys of the wire format.

        If it cannot be read, the run fails: it is of a program in this process, which has a bug.
        """
        self._is_strict = True
        events = self._events = []
        try:
            self._decode(event)
        except Misuse as error:
            self._leave_out(error.message, event, dumps(event))
        return events

    def _leave_out(self, reason: str, event: Any, payload: bytes) -> None:
        """Log why an event is left out, once a type; fail if it may be of a call, or of the run."""
        self._open = bool(self._chunks.open or self._finished_thoughts or self.finished)
        kind = event.get("type") if isinstance(event, dict) else None
        may_be_needed = kind.startswith(_NEEDED) if isinstance(kind, str) else self._open_calls
        if self._is_strict or may_be_needed:
            self._fail(reason, payload)
            return
        self._lacks_text = self._lacks_text or kind in _TEXTS
        self._log_once(str(kind), f"what cannot be read is left out. {reason[:500]}")

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
        if self._lacks_text and not (self._has_text or self._names):
            self._fail("Its answer has texts, and none can be read.", dumps(self._end))
            return
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
                self._has_text = self._has_text or type(plain) is TextMessageStart
                self._events.append(plain)
            return
        match kind:
            case "TOOL_CALL_START":
                self._decode_call_start(event, kind)
            case "TOOL_CALL_END":
                id = require_text(event, "toolCallId", kind)
                self._open_calls.discard(id)
                self._events.append(ActionExecutionEnd(call_id=id))
            case "TOOL_CALL_RESULT":
                self._decode_call_result(event, kind)
            case "MESSAGES_SNAPSHOT":
                self._set_messages(event, kind)
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
                self.untyped = self.untyped if "type" in event else event
                self._log_once(kind, f"events of type {kind[:50]!r} are left out")

    def _log_once(self, cause: str, text: str) -> None:
        if cause not in self._logged:
            self._logged.add(cause)
            logger.warning("Agent %r: %s", self._agent, text)

    def _decode_call_start(self, event: JsonObject, kind: str) -> None:
        id = require_text(event, "toolCallId", kind)
        name = require_text(event, "toolCallName", kind)
        parent_id = optional_text(event, "parentMessageId", kind)
        self._names[id] = name
        self._open_calls.add(id)
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

    def _set_messages(self, event: JsonObject, kind: str) -> None:
        """Decode a snapshot of the conversation, without the messages that cannot be read."""
        items, where = require_list(event.get("messages"), f"{kind}.messages"), f"{kind}.messages"
        if len(items) > _SNAPSHOT_MESSAGES:
            raise Misuse(f"{where} has {len(items)} messages; {_SNAPSHOT_MESSAGES} are allowed.")
        messages: list[Message] = []
        names: dict[str, str] = {}
        reasons: list[str] = []
        for at, item in enumerate(items):
            try:
                messages += decode_messages([item], where, first=at, names=names)
            except Misuse as error:
                reasons.append(error.message)
        if reasons:
            self._leave_out(" ".join(reasons), event, dumps(event))
        if messages or not items:  # else it would delete the conversation
            self._events.append(MessagesSnapshot(messages=messages))

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
            self._log_once(f"activity {id}", f"patch of activity {id!r} dropped: {error}")
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
