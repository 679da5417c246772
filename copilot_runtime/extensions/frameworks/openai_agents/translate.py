"""Translates the events of OpenAI's Agents SDK into ours."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from copilot_runtime.adapters.errors import Service
from copilot_runtime.adapters.openai.responses import ResponseEventReader
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Event,
    ReasoningSignature,
    StepFinished,
    StepStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.api.messages import new_id
from copilot_runtime.base.jsontext import dumps

_WHOLE = frozenset(
    {
        "response.completed",
        "response.incomplete",
        "response.output_item.added",
        "response.output_item.done",
    }
)
"""Events with complete items. `response.created` is ignored: other APIs have a constant id."""


class SDKTranslator:
    """Translates the events of one run.

    `calls` are the names, by their ids, of calls that an earlier run has emitted. Calls in
    `handoffs` are hidden: another agent continues, which is a step of its own.
    """

    def __init__(self, handoffs: Collection[str], calls: Mapping[str, str]) -> None:
        self._handoffs = handoffs
        self._handoff_ids: set[str] = set()
        self._calls = dict(calls)
        self._reader = _create_reader()
        self._agent: str | None = None
        self._has_answer = False
        self.note_item: Callable[[], None] | None = None
        """A callback at the start of each item of a response, for the time to the first one."""

    def feed(self, event: Any) -> Sequence[Event]:
        """Return our events for one event of the SDK."""
        match event.type:
            case "raw_response_event":
                return [one for one in self._read_response(event.data) if self._record(one)]
            case "run_item_stream_event" if event.name == "tool_output":
                return self._result(event.item)
            case "agent_updated_stream_event":
                return self._step(event.new_agent.name)
            case _:
                return []

    def finish(self, answer: Any = None) -> Sequence[Event]:
        """Return the events of a tool's answer that no model repeated, and the last step's end."""
        if answer is None or answer == "" or self._has_answer:
            return self._step(None)
        id = new_id()
        return [
            TextMessageStart(message_id=id),
            TextMessageContent(message_id=id, content=_to_text(answer)),
            TextMessageEnd(message_id=id),
            *self._step(None),
        ]

    def _read_response(self, data: Any) -> Sequence[Event]:
        """Return the events of one of the Responses API, to which the SDK translates all others."""
        if isinstance(getattr(data, "delta", None), str):  # nearly always
            return self._reader.feed(vars(data))
        if data.type not in _WHOLE:
            return []
        fields = data.to_dict(warnings=False)
        if data.type == "response.output_item.added":
            fields["item"].pop("arguments", None)  # whatever they are, they come again
            if self.note_item is not None:
                self.note_item()
        events = self._reader.feed(fields)
        if self._reader.done:
            if data.response.usage is not None:
                events += self._reader.end()
            self._reader = _create_reader()
        return events

    def _record(self, event: Event) -> bool:
        """Record a text or the name of a call. Return whether the event is visible."""
        match event:
            case TextMessageContent():
                self._has_answer = True
            case ActionExecutionStart(call_id=id, name=name) if name in self._handoffs:
                self._handoff_ids.add(id)
                return False
            case ActionExecutionStart(call_id=id, name=name):
                self._calls[id] = name
            case ActionExecutionArgs(call_id=id) | ActionExecutionEnd(call_id=id):
                return id not in self._handoff_ids
            case ReasoningSignature():  # the history is sent without signed thoughts
                return False
            case _:
                pass
        return True

    def _result(self, item: Any) -> Sequence[Event]:
        self._has_answer = False
        raw = item.raw_item
        id = raw.get("call_id") if isinstance(raw, dict) else getattr(raw, "call_id", None)
        if not isinstance(id, str) or id not in self._calls:
            return []
        result = _to_text(item.output)
        return [ActionExecutionResult(call_id=id, name=self._calls[id], result=result)]

    def _step(self, agent: str | None) -> list[Event]:
        before, self._agent = self._agent, agent
        if before == agent:
            return []
        end: list[Event] = [StepFinished(name=before)] if before is not None else []
        return [*end, StepStarted(name=agent)] if agent is not None else end


def _create_reader() -> ResponseEventReader:
    service = Service("OpenAI's Agents SDK")
    return ResponseEventReader(ChatRequest(messages=[]), service, provider="")


def _to_text(output: Any) -> str:
    """Return the output of a tool as the text that the model gets."""
    if isinstance(output, str):
        return output
    if hasattr(output, "model_dump"):
        output = output.model_dump(mode="json")
    try:
        return dumps(output).decode()
    except TypeError:
        return str(output)
