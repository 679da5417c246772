"""Decodes the JSON lines of an agent behind a remote endpoint into our events.

A line with an `event` is LangGraph's (`astream_events`), or one that CopilotKit's SDK adds to
them. A line with a `type` is an event of CopilotKit's own runtime, as CrewAI agents send them.
"""

import logging
from collections.abc import Iterator
from typing import Any

from copilot_runtime.agents.v1_state import decode_interrupt
from copilot_runtime.agui.outcome import AgentFailed
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    AgentState,
    Event,
    Interrupt,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.api.messages import new_id
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import CopilotError, IncompleteStream, Misuse, NetworkError
from copilot_runtime.base.jsontext import dumps, loads, mark_halves
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    as_object,
    as_text,
    get_object,
    get_text,
    optional_text,
    require_object,
    require_text,
    to_text,
)
from copilot_runtime.extensions.frameworks.langgraph.message_stream import MessageStream
from copilot_runtime.extensions.frameworks.langgraph.messages import unwrap_message

logger = logging.getLogger(__name__)

LIMIT = 16 * 1024 * 1024
"""The longest line, in bytes: it may contain a whole state."""


class RemoteEventDecoder:
    """An incremental decoder of byte blocks. After a `failure`, it ignores further input."""

    def __init__(self, agent: str, run: RunInput, limit: int = LIMIT) -> None:
        self.failure: CopilotError | None = None
        self._agent = agent
        self._run = run
        self._limit = limit
        self._rest: list[bytes] = []
        self._size = 0
        self._is_empty = True
        self._langgraph = _LangGraphTranslator(agent, run)
        self._made_id = new_id()
        """The generated id of the last text without one."""

    def feed(self, block: bytes) -> Iterator[Event]:
        """Yield the events of every line that ends in this block."""
        lines = block.split(b"\n")
        self._rest.append(lines[0])
        for line in lines[1:]:
            whole = b"".join(self._rest)
            self._rest = [line]
            yield from self._decode_line(whole)
        self._size = len(lines[-1]) + (self._size if len(lines) == 1 else 0)
        if self._size > self._limit:
            raise NetworkError(
                f"The agent {self._agent!r} sent a line longer than {self._limit} bytes.",
                hint="A state as large as that is better kept elsewhere.",
            )

    def finish(self) -> Iterator[Event]:
        """Yield the events of an unterminated last line, and end open messages and steps."""
        yield from self._decode_line(b"".join(self._rest))
        self._rest.clear()
        if self.failure is None and self._is_empty:
            self.failure = IncompleteStream(f"The agent {self._agent!r} ended without a word.")
        if self.failure is None:
            yield from self._langgraph.finish()

    def _decode_line(self, line: bytes) -> Iterator[Event]:
        if self.failure is not None or not line.strip():
            return
        try:
            fields = loads(line, mark_halves)
            if not isinstance(fields, dict):
                raise Misuse("A line is no object.")
            self._is_empty = False
            if "event" in fields:
                yield from self._langgraph.feed(fields)
                self.failure = self._langgraph.failure
            else:
                yield from self._translate(fields)
        except Misuse as error:
            self._fail(error.message, line)
        except ValueError:
            self._fail("A line is no JSON.", line)

    def _fail(self, reason: str, line: bytes) -> None:
        self.failure = IncompleteStream(
            f"The agent {self._agent!r} sent something that cannot be read. {reason[:500]}",
            hint=f"It sent {line[:200].decode(errors='replace')!r}.",
        )

    def _translate(self, fields: JsonObject) -> Iterator[Event]:
        kind = str(fields.get("type"))
        match kind:
            case "TextMessageStart":
                yield TextMessageStart(
                    message_id=self._text_id(fields, kind), parent_id=_parent_id(fields, kind)
                )
            case "TextMessageContent":
                if content := require_text(fields, "content", kind):
                    yield TextMessageContent(
                        message_id=self._text_id(fields, kind), content=content
                    )
            case "TextMessageEnd":
                yield TextMessageEnd(message_id=self._text_id(fields, kind))
            case "ActionExecutionStart":
                yield ActionExecutionStart(
                    call_id=_call_id(fields, kind),
                    name=require_text(fields, "actionName", kind),
                    parent_id=_parent_id(fields, kind),
                )
            case "ActionExecutionArgs":
                if delta := require_text(fields, "args", kind):
                    yield ActionExecutionArgs(call_id=_call_id(fields, kind), delta=delta)
            case "ActionExecutionEnd":
                yield ActionExecutionEnd(call_id=_call_id(fields, kind))
            case "ActionExecutionResult":
                yield ActionExecutionResult(
                    call_id=_call_id(fields, kind),
                    name=require_text(fields, "actionName", kind),
                    result=to_text(fields.get("result")),
                )
            case "AgentStateMessage":
                yield self._state(fields, kind)
            case "MetaEvent" if fields.get("name") == "LangGraphInterruptEvent":
                yield Interrupt(interrupt_id=new_id(), value=fields.get("value"))
            case "MetaEvent" if fields.get("name") == "CopilotKitLangGraphInterruptEvent":
                yield decode_interrupt(require_object(fields.get("data"), kind))
            case "RunError":
                error = fields.get("error")
                self.failure = AgentFailed(error if isinstance(error, str) else "The agent failed.")
            case _:
                logger.debug("Agent %r: lines of type %.50r are left out", self._agent, kind)

    def _text_id(self, fields: JsonObject, kind: str) -> str:
        """Return the id of a text; those of a CrewAI flow come without, and each gets one."""
        if id := require_text(fields, "messageId", kind):
            return id
        if kind == "TextMessageStart":
            self._made_id = new_id()
        return self._made_id

    def _state(self, fields: JsonObject, kind: str) -> AgentState:
        state = fields.get("state")
        if isinstance(state, str):
            state = loads(state.encode(errors="replace") or b"{}")
        return AgentState(
            agent=self._agent,
            state=state,
            node=optional_text(fields, "nodeName", kind) or "",
            thread_id=self._run.thread_id,
            run_id=optional_text(fields, "runId", kind) or self._run.run_id,
            active=fields.get("active") is True,
            running=fields.get("running") is True,
        )


class _LangGraphTranslator:
    """Translates the events of LangGraph that CopilotKit's SDK passes on, and those it adds.

    The SDK reports the state itself, so only messages, calls and interrupts are read here.
    """

    def __init__(self, agent: str, run: RunInput) -> None:
        self.failure: AgentFailed | None = None
        self._agent = agent
        self._run = run
        self._messages = MessageStream(is_v1=True)
        self._names: dict[str, str] = {}
        """Names of the calls that were shown, by their ids."""

    def feed(self, line: JsonObject) -> Iterator[Event]:
        """Yield the events of one line."""
        match line.get("event"):
            case "on_chat_model_stream":
                for event in self._messages.feed_chunk(line):
                    if isinstance(event, ActionExecutionStart):
                        self._names[event.call_id] = event.name
                    yield event
            case "on_chat_model_end":
                yield from self._messages.finish_model(line)
            case "on_tool_end":
                yield from self._result(unwrap_message(get_object(line, "data").get("output")))
            case "on_custom_event":
                yield from self._emit(get_text(line, "name"), get_object(line, "data"))
            case "on_copilotkit_state_sync":
                yield self._state(line)
            case "on_interrupt":
                yield Interrupt(interrupt_id=new_id(), value=line.get("value"))
            case "on_copilotkit_interrupt":
                yield decode_interrupt(get_object(line, "data"))
            case "error" | "on_copilotkit_error":
                self.failure = AgentFailed(_find_reason(line.get("data")))
            case _:  # internal events of the graph
                pass

    def finish(self) -> Iterator[Event]:
        """Yield the end events of open messages."""
        yield from self._messages.close()

    def _result(self, message: JsonObject) -> Iterator[Event]:
        """Yield the result of a tool of the graph, if its call was shown."""
        id = get_text(message, "tool_call_id")
        if (name := self._names.pop(id, None)) is not None:
            result = to_text(message.get("content"))
            yield ActionExecutionResult(call_id=id, name=name, result=result)

    def _emit(self, name: str, data: JsonObject) -> Iterator[Event]:
        """Yield the events of what a node emits without a model."""
        if name == "copilotkit_manually_emit_message" and (text := get_text(data, "message")):
            yield from self._messages.emit_text(get_text(data, "message_id") or new_id(), text)
        elif name == "copilotkit_manually_emit_tool_call" and (tool := get_text(data, "name")):
            arguments = dumps(data.get("args") or {}).decode()
            yield from self._messages.emit_call(get_text(data, "id") or new_id(), tool, arguments)

    def _state(self, line: JsonObject) -> AgentState:
        return AgentState(
            agent=self._agent,
            state=line.get("state"),
            node=get_text(line, "node_name"),
            thread_id=self._run.thread_id,
            run_id=get_text(line, "run_id") or self._run.run_id,
            active=line.get("active") is True,
            running=line.get("running") is True,
        )


def _find_reason(data: Any) -> str:
    """Return the agent's own message about what went wrong."""
    fields = as_object(data)
    for details in (get_object(fields, "error_details"), get_object(fields, "error"), fields):
        if reason := get_text(details, "message"):
            return reason
    return get_text(fields, "error") or as_text(data) or "The agent failed."


def _parent_id(fields: JsonObject, kind: str) -> str | None:
    return optional_text(fields, "parentMessageId", kind) or None


def _call_id(fields: JsonObject, kind: str) -> str:
    return require_text(fields, "actionExecutionId", kind)
