"""The lines of JSON that an agent behind a remote endpoint answers with become our events.

A line with an `event` is LangGraph's (`langgraph.py`). One with a `type` is an event of
CopilotKit's own runtime, as CrewAI agents send them, and means nearly the same here.
"""

import logging
from collections.abc import Iterator

from copilot_runtime.agents.copilotkit_form import decode_messages
from copilot_runtime.agents.remote.langgraph import LangGraphEvents
from copilot_runtime.agui.outcome import AgentFailed
from copilot_runtime.errors import CopilotError, IncompleteStream, Misuse, NetworkError
from copilot_runtime.events import (
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
from copilot_runtime.interfaces import RunInput
from copilot_runtime.jsontext import loads
from copilot_runtime.jsonvalue import (
    JsonObject,
    optional_text,
    require_object,
    require_text,
    to_text,
)
from copilot_runtime.messages import new_id

logger = logging.getLogger(__name__)

LIMIT = 16 * 1024 * 1024
"""The longest line, in bytes, that is waited for: it may hold a whole state."""


class RemoteEventDecoder:
    """Feed it blocks of bytes, cut anywhere. `failure` says why nothing more is worth reading."""

    def __init__(self, agent: str, run: RunInput, limit: int = LIMIT) -> None:
        self.failure: CopilotError | None = None
        self._agent = agent
        self._run = run
        self._limit = limit
        self._rest: list[bytes] = []
        self._size = 0
        self._understood = False
        self._langgraph = LangGraphEvents(agent, run)

    def feed(self, block: bytes) -> Iterator[Event]:
        """Yield the events of every line that ends in this block."""
        lines = block.split(b"\n")
        self._rest.append(lines[0])
        for line in lines[1:]:
            whole = b"".join(self._rest)
            self._rest = [line]
            yield from self._read(whole)
        self._size = len(lines[-1]) + (self._size if len(lines) == 1 else 0)
        if self._size > self._limit:
            raise NetworkError(
                f"The agent {self._agent!r} sent a line longer than {self._limit} bytes.",
                hint="A state as large as that is better kept elsewhere.",
            )

    def finish(self) -> Iterator[Event]:
        """Yield the events of a last line without an end, and the ends of what is open."""
        yield from self._read(b"".join(self._rest))
        self._rest.clear()
        if self.failure is None and not self._understood:
            self.failure = IncompleteStream(f"The agent {self._agent!r} ended without a word.")
        if self.failure is None:
            yield from self._langgraph.end()

    def _read(self, line: bytes) -> Iterator[Event]:
        if self.failure is not None or not line.strip():
            return
        try:
            said = loads(line)
            if not isinstance(said, dict):
                raise Misuse("A line is no object.")
            self._understood = True
            if "event" in said:
                yield from self._langgraph.take(said)
                self.failure = self._langgraph.failure
            else:
                yield from self._take(said)
        except Misuse as error:
            self._break_off(error.message, line)
        except ValueError:
            self._break_off("A line is no JSON", line)

    def _break_off(self, reason: str, line: bytes) -> None:
        self.failure = IncompleteStream(
            f"The agent {self._agent!r} sent something that cannot be read. {reason[:500]}.",
            hint=f"It sent {line[:200].decode(errors='replace')!r}.",
        )

    def _take(self, said: JsonObject) -> Iterator[Event]:
        kind = str(said.get("type"))
        match kind:
            case "TextMessageStart":
                parent = optional_text(said, "parentMessageId", kind)
                yield TextMessageStart(message_id=_id(said, kind), parent_id=parent)
            case "TextMessageContent":
                if content := require_text(said, "content", kind):
                    yield TextMessageContent(message_id=_id(said, kind), content=content)
            case "TextMessageEnd":
                yield TextMessageEnd(message_id=_id(said, kind))
            case "ActionExecutionStart":
                yield ActionExecutionStart(
                    call_id=_call_id(said, kind),
                    name=require_text(said, "actionName", kind),
                    parent_id=optional_text(said, "parentMessageId", kind),
                )
            case "ActionExecutionArgs":
                if delta := require_text(said, "args", kind):
                    yield ActionExecutionArgs(call_id=_call_id(said, kind), delta=delta)
            case "ActionExecutionEnd":
                yield ActionExecutionEnd(call_id=_call_id(said, kind))
            case "ActionExecutionResult":
                result = said.get("result")
                yield ActionExecutionResult(
                    call_id=_call_id(said, kind),
                    name=require_text(said, "actionName", kind),
                    result=to_text(result),
                )
            case "AgentStateMessage":
                yield self._state(said, kind)
            case "MetaEvent" if said.get("name") == "LangGraphInterruptEvent":
                yield Interrupt(interrupt_id=new_id(), value=said.get("value"))
            case "MetaEvent" if said.get("name") == "CopilotKitLangGraphInterruptEvent":
                asked = require_object(said.get("data"), kind)
                messages = decode_messages(asked.get("messages"))
                yield Interrupt(interrupt_id=new_id(), value=asked.get("value"), messages=messages)
            case "RunError":
                error = said.get("error")
                self.failure = AgentFailed(error if isinstance(error, str) else "The agent failed.")
            case _:
                logger.debug("Agent %r: lines of type %.50r are left out", self._agent, kind)

    def _state(self, said: JsonObject, kind: str) -> AgentState:
        state = said.get("state")
        if isinstance(state, str):
            state = loads(state.encode(errors="replace") or b"{}")
        return AgentState(
            agent=self._agent,
            state=state,
            node=optional_text(said, "nodeName", kind) or "",
            thread_id=self._run.thread_id,
            run_id=optional_text(said, "runId", kind) or self._run.run_id,
            active=said.get("active") is True,
            running=said.get("running") is True,
        )


def _id(said: JsonObject, kind: str) -> str:
    return require_text(said, "messageId", kind)


def _call_id(said: JsonObject, kind: str) -> str:
    return require_text(said, "actionExecutionId", kind)
