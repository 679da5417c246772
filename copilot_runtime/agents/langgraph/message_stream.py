"""What the models of a graph say, chunk by chunk: texts, thoughts and calls, each by its id."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from copilot_runtime.agents.langgraph.messages import (
    calls_of,
    text_of,
    unpacked,
)
from copilot_runtime.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionStart,
    Event,
    ReasoningContent,
    ReasoningEnd,
    ReasoningSignature,
    ReasoningStart,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    Usage,
)
from copilot_runtime.jsontext import dumps
from copilot_runtime.jsonvalue import JsonObject, as_list, as_object, as_optional_text


@dataclass(slots=True)
class _Message:
    """What is open of a message. `calls` are by their place in it."""

    id: str
    text: bool = False
    thought: bool = False
    calls: dict[Any, str | None] = field(default_factory=dict[Any, str | None])


class Speech:
    """Everything that is said in one run, by models or by hand."""

    def __init__(self) -> None:
        self.said: set[str] = set()
        """Ids of messages and calls that have been told, or were not to be."""
        self.texts: set[str] = set()
        """What was said by hand: the graph may put it into its state, under another id."""
        self._open: dict[str, dict[str, _Message]] = {}  # by the model's run, and by their ids

    def chunk(self, event: Mapping[str, Any]) -> list[Event]:
        """Return what a piece of a model's answer says (`on_chat_model_stream`)."""
        data, metadata = event.get("data"), as_object(event.get("metadata"))
        chunk = unpacked(as_object(data).get("chunk"))
        message = self._message(str(event.get("run_id")), chunk.get("id"))
        told: list[Event] = []
        self.said.add(message.id)
        if _wants(metadata, "emit-messages") is not False:
            told += self._think(message, chunk)
            told += self._say(message, text_of(chunk.get("content")))
        calls = chunk.get("tool_call_chunks")
        for piece in as_list(calls):
            told += self._call(message, as_object(piece), _wants(metadata, "emit-tool-calls"))
        return told

    def end(self, event: Mapping[str, Any]) -> list[Event]:
        """Close what a model has left open, and count what it cost (`on_chat_model_end`)."""
        messages = self._open.pop(str(event.get("run_id")), {})
        told = [event for message in messages.values() for event in _closed(message)]
        output, metadata = (
            unpacked(as_object(event.get("data")).get("output")),
            event.get("metadata"),
        )
        self._hide(output, as_object(metadata))
        if isinstance(counted := output.get("usage_metadata"), dict):
            told.append(_usage(counted, output, as_object(metadata)))
        return told

    def whole(self, message: JsonObject) -> list[Event]:
        """Say a message that no model has streamed, as it stands in the state."""
        id, told = message["id"], list[Event]()
        text = text_of(message.get("content"))
        if id not in self.said and text and text not in self.texts:
            told += self.text(id, text)
        self.said.add(id)
        for call in calls_of(message):
            if call["id"] not in self.said:
                told += self.call(call["id"], call["name"], dumps(call["args"]).decode(), id)
        return told

    def text(self, id: str, text: str) -> list[Event]:
        """Say a whole text."""
        self.said.add(id)
        return [
            TextMessageStart(message_id=id),
            *([TextMessageContent(message_id=id, content=text)] if text else []),
            TextMessageEnd(message_id=id),
        ]

    def call(self, id: str, name: str, arguments: str, parent_id: str | None) -> list[Event]:
        """Make a whole call."""
        self.said |= {id, parent_id or id}
        return [
            ActionExecutionStart(call_id=id, name=name, parent_id=parent_id),
            ActionExecutionArgs(call_id=id, delta=arguments),
            ActionExecutionEnd(call_id=id),
        ]

    def close(self) -> list[Event]:
        """Close everything: the run has ended."""
        messages = [message for open in self._open.values() for message in open.values()]
        self._open.clear()
        return [event for message in messages for event in _closed(message)]

    def _message(self, run_id: str, id: Any) -> _Message:
        """Return the message a piece belongs to: without an id, to the last one of its model."""
        messages = self._open.setdefault(run_id, {})
        # LangChain makes up an id for a piece to which the provider has given none
        is_unnamed = not isinstance(id, str) or id.startswith("lc_run-")
        if is_unnamed and messages:
            id = [*messages][-1]
        elif not isinstance(id, str):
            id = run_id
        if id not in messages:
            messages[id] = _Message(id)
        return messages[id]

    def _hide(self, output: JsonObject, metadata: JsonObject) -> None:
        """Note what is not to be told of an answer, which may not have come in pieces."""
        if _wants(metadata, "emit-messages") is False and isinstance(id := output.get("id"), str):
            self.said.add(id)
        wanted = _wants(metadata, "emit-tool-calls")
        self.said |= {c["id"] for c in calls_of(output) if not _is_wanted(c["name"], wanted)}

    def _say(self, message: _Message, text: str) -> Iterable[Event]:
        if not text:
            return
        if message.thought:
            message.thought = False
            yield ReasoningEnd(message_id=_thought_id(message))
        if not message.text:
            message.text = True
            yield TextMessageStart(message_id=message.id)
        yield TextMessageContent(message_id=message.id, content=text)

    def _think(self, message: _Message, chunk: JsonObject) -> Iterable[Event]:
        for thought, signature in _thoughts(chunk):
            if not message.thought and not message.text:
                message.thought = True
                yield ReasoningStart(message_id=_thought_id(message))
            if thought and message.thought:
                yield ReasoningContent(message_id=_thought_id(message), content=thought)
            if signature and message.thought:
                yield ReasoningSignature(entity_id=_thought_id(message), value=signature)

    def _call(self, message: _Message, piece: JsonObject, wanted: Any) -> Iterable[Event]:
        id, name, place = piece.get("id"), piece.get("name"), piece.get("index")
        if isinstance(id, str) and id and isinstance(name, str) and name:
            if id not in self.said:
                self.said.add(id)
                known = _is_wanted(name, wanted)
                if (open_id := message.calls.get(place)) is not None:
                    yield ActionExecutionEnd(call_id=open_id)
                message.calls[place] = id if known else None
                if known:
                    yield ActionExecutionStart(call_id=id, name=name, parent_id=message.id)
        elif place not in message.calls and place is None and message.calls:
            place = [*message.calls][-1]  # some number only the first piece
        delta, open_id = piece.get("args"), message.calls.get(place)
        if isinstance(delta, str) and delta and open_id is not None:
            yield ActionExecutionArgs(call_id=open_id, delta=delta)


def _wants(metadata: Mapping[str, Any], what: str) -> Any:
    """Return what a node says of its model's answers, in CopilotKit's words or in AG-UI's."""
    return metadata.get(f"copilotkit:{what}", metadata.get(what))


def _is_wanted(name: str, wanted: Any) -> bool:
    match wanted:
        case str():
            return name == wanted
        case list():
            return name in wanted
        case _:
            return wanted is not False


def _closed(message: _Message) -> list[Event]:
    told: list[Event] = []
    if message.thought:
        told.append(ReasoningEnd(message_id=_thought_id(message)))
    told += [ActionExecutionEnd(call_id=id) for id in message.calls.values() if id is not None]
    if message.text:
        told.append(TextMessageEnd(message_id=message.id))
    return told


def _thought_id(message: _Message) -> str:
    return f"thought-{message.id}"


def _thoughts(chunk: JsonObject) -> Iterable[tuple[str, str]]:
    """Yield thoughts and their signatures, in the many forms that LangChain passes on."""
    content = chunk.get("content")
    for block in as_list(content):
        match block:
            case {"type": "thinking"}:
                yield str(block.get("thinking") or ""), str(block.get("signature") or "")
            case {"type": "reasoning_content", "reasoning_content": {**inner}}:
                yield str(inner.get("text") or ""), str(inner.get("signature") or "")
            case {"type": "reasoning", "reasoning": str(thought)}:
                yield thought, ""
            case {"type": "reasoning", "summary": [*parts]}:
                yield "".join(str(as_object(part).get("text") or "") for part in parts), ""
            case _:
                pass
    further = as_object(chunk.get("additional_kwargs"))
    if isinstance(thought := further.get("reasoning_content"), str) and thought:
        yield thought, ""
    summary = as_object(further.get("reasoning")).get("summary")
    for part in as_list(summary):
        yield str(as_object(part).get("text") or ""), ""


def _usage(counted: JsonObject, output: JsonObject, metadata: JsonObject) -> Usage:
    response = as_object(output.get("response_metadata"))
    read, written = (as_object(counted.get(f"{way}_token_details")) for way in ("input", "output"))
    model = metadata.get("ls_model_name") or response.get("model_name") or response.get("model")
    reason = response.get("finish_reason") or response.get("stop_reason")
    return Usage(
        model=str(model or ""),
        provider=str(metadata.get("ls_provider") or ""),
        input_tokens=_count(counted.get("input_tokens")),
        output_tokens=_count(counted.get("output_tokens")),
        cached_tokens=_count(read.get("cache_read")),
        cache_write_tokens=_count(read.get("cache_creation")),
        reasoning_tokens=_count(written.get("reasoning")),
        stop_reason=as_optional_text(reason),
    )


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0
