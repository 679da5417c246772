"""Translates the events of OpenAI's Agents SDK into ours."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from copilot_runtime.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Event,
    ReasoningContent,
    ReasoningEnd,
    ReasoningStart,
    StepFinished,
    StepStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    Usage,
)
from copilot_runtime.jsontext import dumps
from copilot_runtime.messages import new_id

_TEXTS = frozenset({"response.output_text.delta", "response.refusal.delta"})
_REASONING = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})
_ENDS = frozenset({"response.completed", "response.incomplete"})


class SDKTranslator:
    """Reads the events of one run.

    `calls` are the names of those, by their ids, that an earlier run has shown. Those of `handoffs`
    are not shown: another agent goes on, which is a step of its own.
    """

    def __init__(self, handoffs: Collection[str], calls: Mapping[str, str]) -> None:
        self._handoffs = handoffs
        self._items: dict[int, _Item] = {}
        self._calls = dict(calls)
        self._agent: str | None = None
        self._has_answer = False

    def feed(self, event: Any) -> Sequence[Event]:
        """Return what one event of the SDK means."""
        match event.type:
            case "raw_response_event":
                events = self._response(event.data)
                self._has_answer |= any(isinstance(one, TextMessageContent) for one in events)
                return events
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
        text = _TextItem()
        return [*text.grow(_to_text(answer)), text.end_event(), *self._step(None)]

    def _response(self, data: Any) -> list[Event]:
        """Translate an event of the Responses API, of pieces or of whole items."""
        kind = data.type
        if kind == "response.output_item.added":
            return self._item(data.output_index, data.item).begin(data.item)
        if kind in _TEXTS or kind in _REASONING or kind == "response.function_call_arguments.delta":
            item = self._items.get(data.output_index)
            return item.grow(data.delta) if item is not None and data.delta else []
        if kind == "response.output_item.done":
            return self._item(data.output_index, data.item).end(data.item)
        if kind in _ENDS:
            events: list[Event] = []
            for index, item in enumerate(data.response.output):
                events += self._item(index, item).end(item)
            self._items = {}
            return [*events, *_usage(data.response)]
        return []

    def _item(self, index: int, item: Any) -> "_Item":
        if index not in self._items:
            self._items[index] = self._create_item(item)
        return self._items[index]

    def _create_item(self, item: Any) -> "_Item":
        match item.type:
            case "message":
                return _TextItem()
            case "reasoning":
                return _ReasoningItem()
            case "function_call" if item.name not in self._handoffs:
                self._calls[item.call_id] = item.name
                return _CallItem(item.call_id)
            case _:
                return _Item()

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


class _Item:
    """One output item of a model. The base class ignores the item: we have no event for it."""

    def begin(self, item: Any) -> list[Event]:  # noqa: ARG002  # for those below
        return []

    def grow(self, piece: str) -> list[Event]:  # noqa: ARG002  # for those below
        return []

    def end(self, item: Any) -> list[Event]:  # noqa: ARG002  # for those below
        return []


class _TextItem(_Item):
    """A text. It starts with its first piece, so that an empty one has no events."""

    def __init__(self) -> None:
        self.id = new_id()  # those of other APIs than Responses are all the same
        self.began = self.ended = False

    def grow(self, piece: str) -> list[Event]:
        start = [] if self.began else [self.start_event()]
        self.began = True
        return [*start, self.content_event(piece)]

    def end(self, item: Any) -> list[Event]:
        if self.ended:
            return []
        self.ended = True
        text = "" if self.began else self.full_text(item)
        events = self.grow(text) if text else []
        return [*events, self.end_event()] if self.began else []

    def start_event(self) -> Event:
        return TextMessageStart(message_id=self.id)

    def content_event(self, piece: str) -> Event:
        return TextMessageContent(message_id=self.id, content=piece)

    def end_event(self) -> Event:
        return TextMessageEnd(message_id=self.id)

    def full_text(self, item: Any) -> str:
        parts = item.content or ()
        return "".join(getattr(p, "text", None) or getattr(p, "refusal", None) or "" for p in parts)


class _ReasoningItem(_TextItem):
    def start_event(self) -> Event:
        return ReasoningStart(message_id=self.id)

    def content_event(self, piece: str) -> Event:
        return ReasoningContent(message_id=self.id, content=piece)

    def end_event(self) -> Event:
        return ReasoningEnd(message_id=self.id)

    def full_text(self, item: Any) -> str:
        return "\n\n".join(part.text for part in item.summary or ())


class _CallItem(_Item):
    def __init__(self, id: str) -> None:
        self.id = id
        self.began = self.grew = self.ended = False

    def begin(self, item: Any) -> list[Event]:
        if self.began:
            return []
        self.began = True
        return [ActionExecutionStart(call_id=self.id, name=item.name)]

    def grow(self, piece: str) -> list[Event]:
        self.grew = True
        return [ActionExecutionArgs(call_id=self.id, delta=piece)]

    def end(self, item: Any) -> list[Event]:
        if self.ended:
            return []
        self.ended = True
        rest = self.grow(item.arguments) if item.arguments and not self.grew else []
        return [*self.begin(item), *rest, ActionExecutionEnd(call_id=self.id)]


def _usage(response: Any) -> Sequence[Event]:
    usage = response.usage
    if usage is None:
        return []
    return [
        Usage(
            model=str(response.model or ""),
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.input_tokens_details.cached_tokens or 0,
            reasoning_tokens=usage.output_tokens_details.reasoning_tokens or 0,
        )
    ]


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
