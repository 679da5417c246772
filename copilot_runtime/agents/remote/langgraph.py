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
from copilot_runtime.jsonvalue import (
    JsonObject,
    as_object,
    as_objects,
    as_text,
    get_object,
    get_text,
    to_text,
)
from copilot_runtime.messages import new_id

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

    def take(self, line: JsonObject) -> Iterator[Event]:
        """Yield the events of one line."""
        match line.get("event"):
            case "on_chat_model_stream":
                yield from self._piece(line)
            case "on_chat_model_end":
                yield from _ended(self._answers.pop(get_text(line, "run_id"), None))
            case "on_tool_end":
                yield from self._result(_fields(get_object(line, "data", "output")))
            case "on_custom_event":
                yield from self._emitted(get_text(line, "name"), get_object(line, "data"))
            case "on_copilotkit_state_sync":
                yield self._state(line)
            case "on_interrupt":
                yield Interrupt(interrupt_id=new_id(), value=line.get("value"))
            case "on_copilotkit_interrupt":
                asked = get_object(line, "data")
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

    def _piece(self, line: JsonObject) -> Iterator[Event]:
        chunk, metadata = _fields(get_object(line, "data", "chunk")), get_object(line, "metadata")
        answer = self._answers.setdefault(get_text(line, "run_id"), _Answer())
        id = get_text(chunk, "id") or answer.message_id or new_id()
        if id != answer.message_id:
            yield from _ended(answer)
            answer.message_id, answer.texts = id, 0
        if metadata.get("copilotkit:emit-messages", True):
            yield from _said(answer, _content(chunk.get("content")))
        shown = metadata.get("copilotkit:emit-tool-calls", True)
        for piece in as_objects(chunk.get("tool_call_chunks")):
            yield from self._called(answer, piece, shown)
        if get_text(get_object(chunk, "response_metadata"), "finish_reason") in _OVER:
            yield from _ended(answer)

    def _called(self, answer: _Answer, piece: JsonObject, shown: Any) -> Iterator[Event]:
        """Yield what a piece of a call tells; the first one has its name."""
        index = piece.get("index")
        answer.index = index if isinstance(index, int | str) else answer.index
        if name := get_text(piece, "name"):
            if (before := answer.calls.pop(answer.index, None)) is not None:
                yield ActionExecutionEnd(call_id=before)
            if not _is_shown(name, shown):
                return
            yield from _silent(answer)
            id = get_text(piece, "id") or new_id()
            answer.calls[answer.index] = id
            self._names[id] = name
            yield ActionExecutionStart(call_id=id, name=name, parent_id=answer.message_id)
        call_id, delta = answer.calls.get(answer.index), get_text(piece, "args")
        if call_id is not None and delta:
            yield ActionExecutionArgs(call_id=call_id, delta=delta)

    def _result(self, message: JsonObject) -> Iterator[Event]:
        """Yield what a tool of the agent's own returned, if its call was shown."""
        id = get_text(message, "tool_call_id")
        if (name := self._names.pop(id, None)) is not None:
            text = to_text(message.get("content"))
            yield ActionExecutionResult(call_id=id, name=name, result=text)

    def _emitted(self, name: str, data: JsonObject) -> Iterator[Event]:
        """Yield what the agent said by itself, without a model."""
        if name == "copilotkit_manually_emit_message" and (text := get_text(data, "message")):
            id = get_text(data, "message_id") or new_id()
            yield TextMessageStart(message_id=id)
            yield TextMessageContent(message_id=id, content=text)
            yield TextMessageEnd(message_id=id)
        elif name == "copilotkit_manually_emit_tool_call" and (called := get_text(data, "name")):
            id = get_text(data, "id") or new_id()
            yield ActionExecutionStart(call_id=id, name=called)
            yield ActionExecutionArgs(call_id=id, delta=dumps(data.get("args") or {}).decode())
            yield ActionExecutionEnd(call_id=id)

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
        return "".join(get_text(part, "text") for part in as_objects(content))
    return as_text(content)


def _fields(message: JsonObject) -> JsonObject:
    """Return the fields of a message, which LangChain may have written as a constructor."""
    return get_object(message, "kwargs") or message


def _reason(data: Any) -> str:
    """Return the agent's own word for what went wrong."""
    told = as_object(data)
    for details in (get_object(told, "error_details"), get_object(told, "error"), told):
        if reason := get_text(details, "message"):
            return reason
    return get_text(told, "error") or as_text(data) or "The agent failed."
