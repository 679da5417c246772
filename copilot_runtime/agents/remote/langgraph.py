"""What a LangGraph agent behind a remote endpoint says becomes our events.

Its lines are LangGraph's own events (`astream_events`, messages as LangChain writes them), and
some that CopilotKit's SDK adds. All that is not listed here is how the agent works, and left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from copilot_runtime.agents.copilotkit_form import decode_messages
from copilot_runtime.agui.outcome import AgentFailed
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
from copilot_runtime.jsontext import dumps
from copilot_runtime.messages import new_id

Json = dict[str, Any]

_OVER = frozenset({"stop", "tool_calls"})
"""How a model says that its message is whole; other words are followed by `on_chat_model_end`."""


@dataclass(slots=True)
class _Answer:
    """One answer of a model, as far as it has come. A text ends where a call begins."""

    message_id: str = ""
    text_id: str = ""
    """The text that is open."""
    texts: int = 0
    calls: dict[Any, str] = field(default_factory=dict[Any, str])
    """The calls that are open, by their index in the answer."""
    index: Any = None


class LangGraphEvents:
    """Reads the lines of one run. `failure` says why it did not end well."""

    def __init__(self, agent: str, run: RunInput) -> None:
        self.failure: AgentFailed | None = None
        self._agent = agent
        self._run = run
        self._answers: dict[str, _Answer] = {}
        self._names: dict[str, str] = {}

    def take(self, line: Json) -> Iterator[Event]:
        """Yield the events of one line."""
        match line.get("event"):
            case "on_chat_model_stream":
                yield from self._piece(line)
            case "on_chat_model_end":
                yield from _ended(self._answers.pop(_text(line, "run_id"), None))
            case "on_tool_end":
                yield from self._result(_fields(_at(line, "data", "output")))
            case "on_custom_event":
                yield from self._emitted(_text(line, "name"), _at(line, "data"))
            case "on_copilotkit_state_sync":
                yield self._state(line)
            case "on_interrupt":
                yield Interrupt(interrupt_id=new_id(), value=line.get("value"))
            case "on_copilotkit_interrupt":
                asked = _at(line, "data")
                messages = decode_messages(asked.get("messages"))
                yield Interrupt(interrupt_id=new_id(), value=asked.get("value"), messages=messages)
            case "error" | "on_copilotkit_error":
                self.failure = AgentFailed(_reason(line.get("data")))
            case _:
                pass

    def end(self) -> Iterator[Event]:
        """Yield the ends of what no model has ended."""
        for answer in self._answers.values():
            yield from _ended(answer)

    def _piece(self, line: Json) -> Iterator[Event]:
        chunk, metadata = _fields(_at(line, "data", "chunk")), _at(line, "metadata")
        answer = self._answers.setdefault(_text(line, "run_id"), _Answer())
        id = _text(chunk, "id") or answer.message_id or new_id()
        if id != answer.message_id:
            yield from _ended(answer)
            answer.message_id, answer.texts = id, 0
        if metadata.get("copilotkit:emit-messages", True):
            yield from _said(answer, _content(chunk.get("content")))
        shown = metadata.get("copilotkit:emit-tool-calls", True)
        pieces = chunk.get("tool_call_chunks")
        for piece in pieces if isinstance(pieces, list) else ():
            if isinstance(piece, dict):
                yield from self._called(answer, piece, shown)
        if _text(_at(chunk, "response_metadata"), "finish_reason") in _OVER:
            yield from _ended(answer)

    def _called(self, answer: _Answer, piece: Json, shown: Any) -> Iterator[Event]:
        """Yield what a piece of a call tells; the first one has its name."""
        index = piece.get("index")
        answer.index = index if isinstance(index, int | str) else answer.index
        if name := _text(piece, "name"):
            if (before := answer.calls.pop(answer.index, None)) is not None:
                yield ActionExecutionEnd(call_id=before)
            if not _is_shown(name, shown):
                return
            yield from _silent(answer)
            id = _text(piece, "id") or new_id()
            answer.calls[answer.index] = id
            self._names[id] = name
            yield ActionExecutionStart(call_id=id, name=name, parent_id=answer.message_id)
        call_id, delta = answer.calls.get(answer.index), _text(piece, "args")
        if call_id is not None and delta:
            yield ActionExecutionArgs(call_id=call_id, delta=delta)

    def _result(self, message: Json) -> Iterator[Event]:
        """Yield what a tool of the agent's own returned, if its call was shown."""
        id = _text(message, "tool_call_id")
        if (name := self._names.pop(id, None)) is not None:
            content = message.get("content")
            text = content if isinstance(content, str) else dumps(content).decode()
            yield ActionExecutionResult(call_id=id, name=name, result=text)

    def _emitted(self, name: str, data: Json) -> Iterator[Event]:
        """Yield what the agent said by itself, without a model."""
        if name == "copilotkit_manually_emit_message" and (text := _text(data, "message")):
            id = _text(data, "message_id") or new_id()
            yield TextMessageStart(message_id=id)
            yield TextMessageContent(message_id=id, content=text)
            yield TextMessageEnd(message_id=id)
        elif name == "copilotkit_manually_emit_tool_call" and (called := _text(data, "name")):
            id = _text(data, "id") or new_id()
            yield ActionExecutionStart(call_id=id, name=called)
            yield ActionExecutionArgs(call_id=id, delta=dumps(data.get("args") or {}).decode())
            yield ActionExecutionEnd(call_id=id)

    def _state(self, line: Json) -> AgentState:
        return AgentState(
            agent=self._agent,
            state=line.get("state"),
            node=_text(line, "node_name"),
            thread_id=self._run.thread_id,
            run_id=_text(line, "run_id") or self._run.run_id,
            active=line.get("active") is True,
            running=line.get("running") is True,
        )


def _said(answer: _Answer, text: str) -> Iterator[Event]:
    if not text:
        return
    if not answer.text_id:
        # a second text of one message needs an id of its own
        answer.text_id = new_id() if answer.texts else answer.message_id
        answer.texts += 1
        yield TextMessageStart(message_id=answer.text_id)
    yield TextMessageContent(message_id=answer.text_id, content=text)


def _silent(answer: _Answer) -> Iterator[Event]:
    if answer.text_id:
        yield TextMessageEnd(message_id=answer.text_id)
        answer.text_id = ""


def _ended(answer: _Answer | None) -> Iterator[Event]:
    if answer is None:
        return
    yield from _silent(answer)
    for call_id in answer.calls.values():
        yield ActionExecutionEnd(call_id=call_id)
    answer.calls.clear()


def _is_shown(name: str, shown: Any) -> bool:
    """Say whether the agent wants a call to be seen: it says yes, no, a name, or several."""
    return name in shown if isinstance(shown, list) else shown is True or shown == name


def _content(content: Any) -> str:
    """Return the text of a message, which is a string or a list of parts."""
    if isinstance(content, list):
        parts = (part for part in content if isinstance(part, dict))
        return "".join(_text(part, "text") for part in parts)
    return content if isinstance(content, str) else ""


def _fields(message: Json) -> Json:
    """Return the fields of a message, which LangChain may have written as a constructor."""
    return _at(message, "kwargs") or message


def _reason(data: Any) -> str:
    """Return the agent's own word for what went wrong."""
    told = data if isinstance(data, dict) else {}
    for details in (_at(told, "error_details"), _at(told, "error"), told):
        if reason := _text(details, "message"):
            return reason
    return _text(told, "error") or (data if isinstance(data, str) else "") or "The agent failed."


def _at(fields: Any, *keys: str) -> Json:
    """Return the object found there, or an empty one."""
    for key in keys:
        fields = fields.get(key) if isinstance(fields, dict) else None
    return fields if isinstance(fields, dict) else {}


def _text(fields: Json, key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) else ""
