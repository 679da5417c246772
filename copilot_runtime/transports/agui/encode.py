"""Encode the log of a run as AG-UI events, in an order that every client accepts.

The rules are those of `verifyEvents` in @ag-ui/client 0.0.59 and 1.0.0: items must be started
before they grow, started only once, and ended before the run. Events that break a rule are dropped
here, and items that are open at the end are closed, so that a failed run keeps its text.
Events: https://docs.ag-ui.com/concepts/events.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, assert_never

from copilot_runtime.agui.messages import encode_messages
from copilot_runtime.agui.outcome import (
    FINISH_REASON,
    encode_finish_reason,
    encode_langgraph_value,
    encode_usage,
    is_of_langgraph,
)
from copilot_runtime.agui.parts import PROTOCOL_VERSION, encode_part
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Activity,
    AgentState,
    Custom,
    Event,
    Interrupt,
    MessagesSnapshot,
    Raw,
    ReasoningContent,
    ReasoningEnd,
    ReasoningSignature,
    ReasoningStart,
    RunFailed,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
    Subagent,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    Usage,
)
from copilot_runtime.api.messages import Message, ReasoningMessage
from copilot_runtime.base.errors import STOPPED, Cancelled, ErrorReport
from copilot_runtime.base.jsonpatch import make_patch
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import drop_none
from copilot_runtime.event_order.verify import OpenItems, interrupted_result
from copilot_runtime.transports import trace_ids

_ROLES = {"assistant", "user", "system", "developer"}
"""The roles of text messages on the wire."""

_AFTER_1_50 = ("REASONING_", "SUBAGENT_")
"""Prefixes of events that @ag-ui/client 0.0.42 does not know."""

_TEXT = b'data: {"type":"TEXT_MESSAGE_START","messageId":%b,"role":"%b"%b}\n\n'

_CONTENT = b'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":%b,"delta":'
_ARGS = b'data: {"type":"TOOL_CALL_ARGS","toolCallId":%b,"delta":'
_THOUGHT = b'data:{"type":"REASONING_MESSAGE_CONTENT","messageId":%b,"delta":'
"""The frames with deltas of an item up to the delta, with a place for its encoded id.

Their fields are those of `_field`.
"""

_ENDS = {
    "text": b'data: {"type":"TEXT_MESSAGE_END","messageId":%b}\n\n',
    "call": b'data: {"type":"TOOL_CALL_END","toolCallId":%b}\n\n',
    "thought": b'data:{"type":"REASONING_MESSAGE_END","messageId":%b}\n\n',
    "reasoning": b'data:{"type":"REASONING_END","messageId":%b}\n\n',
    "subagent": b'data:{"type":"SUBAGENT_FINISHED","subagentRunId":%b}\n\n',
    "step": b'data: {"type":"STEP_FINISHED","stepName":%b}\n\n',
}
"""Kind of an open item → the frame that ends it, with a place for its encoded id."""

_NOTHING = object()


@dataclass(frozen=True, slots=True)
class Dialect:
    """The capabilities of a client.

    `legacy`: the client is older than AG-UI 1.0, so its schemas reject a `cancelled` outcome,
    pending tool calls, and results in parts.
    `reasoning`: whether to send reasoning, at which React 1.51.3 and 1.51.4 abort the run.
    `subagents`: whether to send events of subagents, at which clients before 1.71 abort the run.
    `interrupts`: the form of interrupts: the `outcome` of the run, the `custom` event
    `on_interrupt` for older clients, or both. `auto` is `custom` for interrupts of LangGraph to
    `legacy` clients, as in Node's LangGraphAgent, and `outcome` for all others.
    """

    legacy: bool = True
    reasoning: bool = True
    subagents: bool = False
    interrupts: Literal["auto", "outcome", "custom", "both"] = "auto"


class Encoder:
    """Encodes the events of one run as frames of an event stream.

    The state of `agent` is the client's state; the states of other agents are custom events.
    """

    def __init__(
        self,
        thread_id: str,
        run_id: str,
        *,
        agent: str = "",
        dialect: Dialect | None = None,
        trace_id: str = "",
    ) -> None:
        self._trace_id = trace_id
        self._ids = {"threadId": thread_id, "runId": run_id}
        self._agent = agent
        self._dialect = dialect or Dialect()
        self._open: OpenItems[str, bytes] = OpenItems()
        """The open items; each value is the prefix of the frames with the item's deltas."""
        self._texts = self._open.by_kind["text"]
        self._calls = self._open.by_kind["call"]
        self._thoughts = self._open.by_kind["thought"]
        self._state: Any = _NOTHING
        self._departed: set[str] = set()
        """Subagents that have ended."""
        self._activities: dict[str, Activity] = {}
        self._interrupts: list[dict[str, Any]] = []
        self._usage: list[Usage] = []
        self._pending: dict[str, str] = {}
        """Names of the calls without a result, by call id, in order of their start."""
        self._server_actions: Collection[str] = ()
        """Names of the actions that only the server executes."""
        self._frames: list[bytes] = []
        self._started = False
        self.ended = False

    def feed(self, events: Sequence[Event]) -> list[bytes]:
        """Return the frames for a batch of events, to be sent in one write."""
        if len(events) == 1 and type(event := events[0]) is TextMessageContent:  # nearly always
            head = self._texts.get(event.message_id)
            return [b"%b%b}\n\n" % (head, dumps(event.content))] if head and event.content else []
        for event in events:
            match event:  # most frequent first; nothing is open after the end
                case TextMessageContent(message_id=key, content=piece):
                    if piece and (head := self._texts.get(key)):
                        self._frames.append(b"%b%b}\n\n" % (head, dumps(piece)))
                case ActionExecutionArgs(call_id=key, delta=piece):
                    if piece and (head := self._calls.get(key)):
                        self._frames.append(b"%b%b}\n\n" % (head, dumps(piece)))
                case ReasoningContent(message_id=key, content=piece):
                    if piece and (head := self._thoughts.get(key) or self._thought_again(key)):
                        self._frames.append(b"%b%b}\n\n" % (head, dumps(piece)))
                case _ if not self.ended:
                    self._other(event)
                case _:
                    pass
        frames, self._frames = self._frames, []
        return frames

    def _other(self, event: Event) -> None:
        if not self._started and not isinstance(event, RunStarted | RunFailed):
            self._start(())
        match event:  # events of short answers first
            case RunStarted(messages=messages, server_actions=names):
                self._server_actions = names
                self._start(messages)
            case TextMessageStart():
                self._text(event)
            case TextMessageEnd(message_id=key):
                self._close("text", key)
            case Usage():
                self._usage.append(event)
            case RunFinished():
                self._finish(event)
            case ActionExecutionStart():
                self._call(event)
            case ActionExecutionEnd(call_id=key):
                self._close("call", key)
            case ActionExecutionResult():
                self._result(event)
            case ReasoningStart(message_id=key):
                self._thought(key)
            case ReasoningSignature():
                self._signature(event)
            case ReasoningEnd(message_id=key):
                self._close("thought", key)
                self._close("reasoning", key)
            case AgentState():
                self._agent_state(event)
            case Activity():
                self._activity(event)
            case StepStarted(name=name):
                if self._open.begin("step", name, b""):
                    self._send("STEP_STARTED", stepName=name)
            case StepFinished(name=name):
                self._close("step", name)
            case Interrupt():
                self._interrupt(event)
            case MessagesSnapshot(messages=messages):
                self._send("MESSAGES_SNAPSHOT", messages=self._encode_messages(messages))
            case Subagent():
                if self._dialect.subagents:
                    self._subagent(event)
            case Custom(name=name, value=value):
                # with `value` even if it is null
                self._frames.append(_frame({"type": "CUSTOM", "name": name, "value": value}))
            case Raw(event=foreign, source=source):
                raw = {"type": "RAW", "event": foreign}
                self._frames.append(_frame(raw if source is None else {**raw, "source": source}))
            case RunFailed(error=error):
                self._fail(error)
            case TextMessageContent() | ActionExecutionArgs() | ReasoningContent():
                pass  # handled by `feed`
            case _:
                assert_never(event)

    def _start(self, messages: Sequence[Message]) -> None:
        if self._started:
            return
        self._started = True
        # reasoning is sent as events; React 1.50 rejects such messages
        history = [it for it in messages if not isinstance(it, ReasoningMessage)]
        started = {
            "type": "RUN_STARTED",
            **self._ids,
            "protocolVersion": PROTOCOL_VERSION,
            "input": {
                **self._ids,
                "state": {},
                "messages": self._encode_messages(history),
                "tools": [],
                "context": [],
                "forwardedProps": {},
            },
        }
        self._frames.append(b"data: %b\n\n" % dumps(started))
        if self._trace_id:
            self._send("CUSTOM", name=trace_ids.EVENT, value={"traceId": self._trace_id})

    def _encode_messages(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        return encode_messages(messages, legacy=self._dialect.legacy)

    def _text(self, event: TextMessageStart) -> None:
        id = dumps(event.message_id)
        if self._open.begin("text", event.message_id, _CONTENT % id):
            role = event.role if event.role in _ROLES else "assistant"
            author = b"" if event.agent is None else b',"name":%b' % dumps(event.agent)
            self._frames.append(_TEXT % (id, role.encode(), author))

    def _call(self, event: ActionExecutionStart) -> None:
        key = event.call_id
        if self._open.begin("call", key, _ARGS % dumps(key)):
            self._pending[key] = event.name
            self._send(
                "TOOL_CALL_START",
                toolCallId=key,
                toolCallName=event.name,
                parentMessageId=event.parent_id,
            )

    def _result(self, event: ActionExecutionResult) -> None:
        key = event.call_id
        self._close("call", key)
        parts = () if self._dialect.legacy else event.parts
        content = [encode_part(part, legacy=False) for part in parts] or event.result
        self._send_result(key, event.message_id or f"result-{key}", content)

    def _send_result(self, key: str, message_id: str, content: str | list[Any]) -> None:
        self._pending.pop(key, None)
        names = {"messageId": message_id, "toolCallId": key}
        self._send("TOOL_CALL_RESULT", **names, content=content, role="tool")

    def _thought(self, key: str) -> None:
        if self._dialect.reasoning and self._open.begin("reasoning", key, b""):
            self._send("REASONING_START", messageId=key)
            self._thought_again(key)

    def _thought_again(self, key: str) -> bytes | None:
        """Start the next reasoning message, if the reasoning block is still open."""
        if key not in self._open.by_kind["reasoning"]:
            return None
        head = _THOUGHT % dumps(key)
        if not self._open.begin("thought", key, head):
            return None
        self._send("REASONING_MESSAGE_START", messageId=key, role="reasoning")
        return head

    def _signature(self, event: ReasoningSignature) -> None:
        if not self._dialect.reasoning:
            return
        if event.of == "message":
            self._close("thought", event.entity_id)
        self._send(
            "REASONING_ENCRYPTED_VALUE",
            subtype="message" if event.of == "message" else "tool-call",
            entityId=event.entity_id,
            encryptedValue=event.value,
        )

    def _agent_state(self, event: AgentState) -> None:
        if self._agent and event.agent and event.agent != self._agent:
            value = {"agent": event.agent, "state": event.state, "node": event.node}
            self._send("CUSTOM", name="agent_state", value={**value, "running": event.running})
            return
        patch = None if self._state is _NOTHING else make_patch(self._state, event.state)
        self._state = event.state
        if patch is None:
            # `snapshot` may be null, which `_send` would omit
            self._frames.append(_frame({"type": "STATE_SNAPSHOT", "snapshot": event.state}))
        elif patch:
            self._send("STATE_DELTA", delta=patch)

    def _activity(self, event: Activity) -> None:
        key, before = event.message_id, self._activities.get(event.message_id)
        if before is not None and not event.replace:
            return  # the client keeps its content
        self._activities[key] = event
        names = {"messageId": key, "activityType": event.activity_type}
        # without `replace`, the client may have ignored the content
        if before is not None and before.replace and before.activity_type == event.activity_type:
            patch = make_patch(before.content, event.content)
            if patch is not None:
                if patch:
                    self._send("ACTIVITY_DELTA", **names, patch=patch)
                return
        self._send("ACTIVITY_SNAPSHOT", **names, content=event.content, replace=event.replace)

    def _interrupt(self, event: Interrupt) -> None:
        form = self._dialect.interrupts
        if form == "auto":
            form = "custom" if self._dialect.legacy and is_of_langgraph(event) else "outcome"
        if form != "outcome":
            self._send("CUSTOM", name="on_interrupt", value=_encode_question(event))
        if form != "custom":
            self._interrupts.append(_encode_interrupt(event))

    def _subagent(self, event: Subagent) -> None:
        key = event.subagent_id
        if event.status == "started":
            if key not in self._departed and self._open.begin("subagent", key, b""):
                self._send("SUBAGENT_STARTED", subagentRunId=key, name=event.name or key)
        elif self._open.end("subagent", key):
            self._departed.add(key)  # the client accepts each subagent id only once
            if event.status == "failed":
                message = event.message or "The subagent failed."
                self._send("SUBAGENT_ERROR", subagentRunId=key, message=message)
            else:
                self._send("SUBAGENT_FINISHED", subagentRunId=key, result=event.result)

    def _finish(self, event: RunFinished) -> None:
        self._close_all(None)
        outcome = None
        if self._interrupts:
            outcome = {"type": "interrupt", "interrupts": self._interrupts}
        elif self._pending and not self._dialect.legacy:
            outcome = {"type": "success", "pendingToolCallIds": [*self._pending]}
        self._send_end(result=event.result, outcome=outcome)

    def _fail(self, error: ErrorReport) -> None:
        is_stopped = error.code == Cancelled.code
        if is_stopped and not self._dialect.legacy:
            self._start(())
            self._close_all(error)
            self._send_end(outcome={"type": "cancelled"})
            return
        self._close_all(error)
        # the client regards `abort` as requested by the user, and shows no error
        message = "Run stopped by user" if error == STOPPED else error.message  # as from Node
        self._send("RUN_ERROR", message=message, code="abort" if is_stopped else error.code)
        self.ended = True

    def _send_end(self, **values: Any) -> None:
        """End the run. The finish reason is next to the token counts, as in Node."""
        if self._usage:
            values["usage"] = encode_usage(self._usage, legacy=self._dialect.legacy) or None
            reason = encode_finish_reason(self._usage)
            if self._dialect.legacy:
                values[FINISH_REASON] = reason
            elif reason is not None:  # 1.0 has no such field, and its clients log a warning
                values["metadata"] = {FINISH_REASON: reason}
        self._send("RUN_FINISHED", **self._ids, **values)
        self.ended = True

    def _close(self, kind: str, key: str) -> None:
        """Send the end of an item if it is open."""
        if self._open.end(kind, key):
            self._frames.append(_ENDS[kind] % dumps(key))

    def _close_all(self, error: ErrorReport | None) -> None:
        """Close all open items, the innermost first.

        With an error, interrupted calls also get a result, and so do complete calls of server
        actions that have none.
        """
        for kind, key, _ in self._open.list_innermost_first():
            self._close(kind, key)
            if kind == "call" and error is not None:
                self._send_result(key, f"{key}-result", interrupted_result(error))
        if error is not None:
            for key, name in [*self._pending.items()]:
                if name in self._server_actions:
                    result = interrupted_result(error, is_complete=True)
                    self._send_result(key, f"{key}-result", result)

    def _send(self, kind: str, **values: Any) -> None:
        """Send an event, without the values that are `None`: clients reject most nulls."""
        event = {"type": kind}
        for name, value in values.items():
            if value is not None:
                event[name] = value
        self._frames.append(_frame(event))


def _frame(event: Mapping[str, Any]) -> bytes:
    return b"%b%b\n\n" % (_field(event["type"]), dumps(event))


def _field(kind: str) -> bytes:
    """Return the field name of an event's line, with or without a space after the colon.

    React 1.50 aborts a run at an unknown event, but it only reads lines with a space. All other
    clients read both, as the standard for server-sent events requires. So events that React 1.50
    does not know are written without the space.
    """
    return b"data:" if kind.startswith(_AFTER_1_50) else b"data: "


def _encode_question(event: Interrupt) -> Any:
    """Return the value of `on_interrupt`; for LangGraph, it is a string, as in Node."""
    if is_of_langgraph(event):
        return encode_langgraph_value(event)
    if event.value is None:
        return _encode_interrupt(event)
    is_langgraph = isinstance(event.metadata, Mapping) and "langgraph" in event.metadata
    if is_langgraph and not isinstance(event.value, str):
        return dumps(event.value).decode()
    return event.value


def _encode_interrupt(event: Interrupt) -> dict[str, Any]:
    """Return an interrupt in the format of a run's outcome."""
    metadata = event.metadata
    value = event.value
    if metadata is None and not (isinstance(value, Mapping) and {"id", "reason"} <= value.keys()):
        metadata = value  # the value is not already an AG-UI interrupt
    if metadata is not None and not isinstance(metadata, Mapping):
        metadata = {"value": metadata}  # clients require an object
    return drop_none(
        {
            "id": event.interrupt_id,
            "reason": event.reason,
            "message": event.message,
            "toolCallId": event.call_id,
            "responseSchema": event.response_schema,
            "expiresAt": event.expires_at,
            "metadata": metadata,
        }
    )
