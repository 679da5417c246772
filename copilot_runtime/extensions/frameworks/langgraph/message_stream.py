"""Decodes the message stream of a graph, and tracks its subagents."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from copilot_runtime.adapters.stop_reasons import is_cut_off, read_stop_reason
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionStart,
    Event,
    ReasoningContent,
    ReasoningEnd,
    ReasoningSignature,
    ReasoningStart,
    Subagent,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    Usage,
)
from copilot_runtime.api.messages import new_id
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    as_count,
    as_list,
    as_object,
    as_objects,
    as_optional_text,
    get_object,
)
from copilot_runtime.extensions.frameworks.langgraph.call_names import CallNames
from copilot_runtime.extensions.frameworks.langgraph.messages import (
    extract_text,
    parse_tool_calls,
    unwrap_message,
)


@dataclass(slots=True)
class _OpenMessage:
    """The open parts of a message; `text_id` is None while no text is open."""

    id: str
    text_id: str | None = None
    has_reasoning: bool = False
    texts: int = 0
    calls: dict[Any, str | None] = field(default_factory=dict[Any, str | None])
    """Ids of the open calls by their index; `None` for a hidden call."""
    with_arguments: set[str] = field(default_factory=set[str])
    """Ids of the calls some of whose arguments have arrived."""


class MessageStream:
    """The texts and calls of one run, from models or emitted by a node.

    `names` are the ids of the calls on the page. CopilotKit v1 (`is_v1`) has no events for
    reasoning and usage, and its texts end where a call starts; a text after it is a new message.
    """

    def __init__(self, names: CallNames | None = None, *, is_v1: bool = False) -> None:
        self.ids: set[str] = set()
        """Ids of messages and calls that were emitted or are hidden."""
        self.manual_texts: set[str] = set()
        """Texts emitted by nodes, which the graph may add to its state under another id."""
        self._names = names
        self._is_v1 = is_v1
        self._open: dict[str, dict[str, _OpenMessage]] = {}  # by the model's run, and by their ids

    @property
    def has_open_call(self) -> bool:
        """True while a model streams the arguments of a call that is shown."""
        messages = (message for run in self._open.values() for message in run.values())
        return any(id is not None for message in messages for id in message.calls.values())

    def feed_chunk(self, event: Mapping[str, Any]) -> list[Event]:
        """Return the events of a chunk of a model (`on_chat_model_stream`)."""
        metadata = as_object(event.get("metadata"))
        if _is_internal(metadata, event.get("tags")):
            return []  # if the graph adds the answer to its messages, it is shown then
        chunk = unwrap_message(as_object(event.get("data")).get("chunk"))
        message = self._message(str(event.get("run_id")), chunk.get("id"))
        events: list[Event] = []
        self.ids.add(message.id)
        if _read_filter(metadata, "emit-messages"):
            content = chunk.get("content")
            is_plain = isinstance(content, str) and not chunk.get("additional_kwargs")
            if not is_plain and not self._is_v1:
                events += _stream_reasoning(message, chunk)
            events += _stream_text(message, extract_text(content))
        if pieces := chunk.get("tool_call_chunks"):
            for piece in as_objects(pieces):
                events += self._stream_call(message, piece, metadata)
        return events

    def finish_model(self, event: Mapping[str, Any]) -> list[Event]:
        """Return the ends of a model's open messages, and its usage (`on_chat_model_end`).

        In an answer that was cut off, a last call without arguments gets no end: it must not run.
        """
        messages = self._open.pop(str(event.get("run_id")), {})
        output = unwrap_message(get_object(event, "data").get("output"))
        if is_cut_off(output):
            for message in messages.values():
                last = next(reversed(message.calls.values()), None)
                if last not in message.with_arguments:
                    message.calls = {at: id for at, id in message.calls.items() if id != last}
        events = [event for message in messages.values() for event in _close(message)]
        metadata = get_object(event, "metadata")
        self._hide(output, metadata, is_streamed=bool(messages))
        usage = output.get("usage_metadata")
        if isinstance(usage, dict) and not self._is_v1:
            events.append(_translate_usage(usage, output, metadata))
        return events

    def emit_message(self, message: JsonObject) -> list[Event]:
        """Return the events of a message of the state that no model has streamed."""
        id, events = message["id"], list[Event]()
        text = extract_text(message.get("content"))
        if id not in self.ids and text and text not in self.manual_texts:
            events += self.emit_text(id, text)
        self.ids.add(id)
        calls = parse_tool_calls(message)
        for call in calls:
            if call["id"] not in self.ids:
                new = self.emit_call(call["id"], call["name"], dumps(call["args"]).decode(), id)
                if call is calls[-1] and not call["args"] and is_cut_off(message):
                    del new[1:]  # its arguments are missing, and so is its end
                events += new
        return events

    def emit_text(self, id: str, text: str) -> list[Event]:
        """Return the events of a whole text."""
        self.ids.add(id)
        return [
            TextMessageStart(message_id=id),
            *([TextMessageContent(message_id=id, content=text)] if text else []),
            TextMessageEnd(message_id=id),
        ]

    def emit_call(
        self, id: str, name: str, arguments: str, parent_id: str | None = None
    ) -> list[Event]:
        """Return the events of a whole call; `arguments` is JSON."""
        self.ids |= {id, parent_id or id}
        return [
            ActionExecutionStart(call_id=id, name=name, parent_id=parent_id),
            ActionExecutionArgs(call_id=id, delta=arguments),
            ActionExecutionEnd(call_id=id),
        ]

    def close(self) -> list[Event]:
        """Return the end events of all open messages."""
        messages = [message for open in self._open.values() for message in open.values()]
        self._open.clear()
        return [event for message in messages for event in _close(message)]

    def _message(self, run_id: str, id: Any) -> _OpenMessage:
        """Return the message of a chunk: without an id, the last one of the model's run."""
        messages = self._open.setdefault(run_id, {})
        # LangChain makes up an id for a chunk to which the provider has given none: in Python
        # lc_run-, in JavaScript run-
        prefixes = ("lc_run-", f"run-{run_id}")
        is_nameless = not isinstance(id, str) or not id or id.startswith(prefixes)
        if is_nameless and messages:
            id = [*messages][-1]
        elif not isinstance(id, str) or not id:
            id = run_id
        if id not in messages:
            messages[id] = _OpenMessage(id)
        return messages[id]

    def _hide(self, output: JsonObject, metadata: JsonObject, *, is_streamed: bool) -> None:
        """Mark the hidden parts of an answer."""
        id = output.get("id")
        if not _read_filter(metadata, "emit-messages") and isinstance(id, str):
            self.ids.add(id)
        filter = _read_filter(metadata, "emit-tool-calls")
        for call in parse_tool_calls(output):
            if not _matches(call["name"], filter):
                name = call["id"]
                if self._names is not None:
                    by_stream = self._names.get_latest(name)
                    name = by_stream if is_streamed else self._names.find(str(id), name)
                self.ids.add(name)

    def _stream_call(
        self, message: _OpenMessage, piece: JsonObject, metadata: JsonObject
    ) -> Iterable[Event]:
        id, name, index = piece.get("id"), piece.get("name"), piece.get("index")
        index = index if isinstance(index, int | str) else None
        if isinstance(name, str) and name and (id or index not in message.calls):
            id = id if isinstance(id, str) and id else new_id()
            if self._names is not None:
                id = self._names.find(message.id, id)
            if id not in self.ids:
                self.ids.add(id)
                if (open_id := message.calls.get(index)) is not None:
                    yield ActionExecutionEnd(call_id=open_id)
                is_visible = _matches(name, _read_filter(metadata, "emit-tool-calls"))
                message.calls[index] = id if is_visible else None
                if is_visible:
                    if self._is_v1:
                        yield from _close_text(message)
                    yield ActionExecutionStart(call_id=id, name=name, parent_id=message.id)
        elif index is None and index not in message.calls and message.calls:
            index = [*message.calls][-1]  # some number only the first chunk
        delta, open_id = piece.get("args"), message.calls.get(index)
        if isinstance(delta, str) and delta and open_id is not None:
            message.with_arguments.add(open_id)
            yield ActionExecutionArgs(call_id=open_id, delta=delta)


def _read_filter(metadata: Mapping[str, Any], name: str) -> Any:
    """Return a node's filter for its model's answers, by CopilotKit's key or by AG-UI's."""
    return metadata.get(f"copilotkit:{name}", metadata.get(name, True))


_NOSTREAM = ("nostream", "langsmith:nostream")
"""Tags of a model whose answers are not streamed, in Python and in JavaScript.

https://reference.langchain.com/python/langgraph/constants/TAG_NOSTREAM
"""


def _is_internal(metadata: Mapping[str, Any], tags: Any) -> bool:
    """Return whether a model speaks to no person, such as for a summary of LangChain's."""
    return "lc_source" in metadata or any(tag in _NOSTREAM for tag in as_list(tags))


def _matches(name: str, filter: Any) -> bool:
    """Return whether a filter shows a call: it is a boolean, a name, or a list of names."""
    return name in filter if isinstance(filter, list) else filter is True or name == filter


def _stream_text(message: _OpenMessage, text: str) -> Iterable[Event]:
    if not text:
        return
    if message.has_reasoning:
        message.has_reasoning = False
        yield ReasoningEnd(message_id=_reasoning_id(message))
    if message.text_id is None:
        message.text_id = message.id if message.texts == 0 else new_id()
        message.texts += 1
        yield TextMessageStart(message_id=message.text_id)
    yield TextMessageContent(message_id=message.text_id, content=text)


def _stream_reasoning(message: _OpenMessage, chunk: JsonObject) -> Iterable[Event]:
    for thought, signature in _parse_reasoning(chunk):
        if not message.has_reasoning and message.text_id is None:
            message.has_reasoning = True
            yield ReasoningStart(message_id=_reasoning_id(message))
        if thought and message.has_reasoning:
            yield ReasoningContent(message_id=_reasoning_id(message), content=thought)
        if signature and message.has_reasoning:
            yield ReasoningSignature(entity_id=_reasoning_id(message), value=signature)


def _close(message: _OpenMessage) -> Iterable[Event]:
    if message.has_reasoning:
        yield ReasoningEnd(message_id=_reasoning_id(message))
    for id in message.calls.values():
        if id is not None:
            yield ActionExecutionEnd(call_id=id)
    yield from _close_text(message)


def _close_text(message: _OpenMessage) -> Iterable[Event]:
    if message.text_id is not None:
        yield TextMessageEnd(message_id=message.text_id)
        message.text_id = None


def _reasoning_id(message: _OpenMessage) -> str:
    return f"thought-{message.id}"


def _parse_reasoning(chunk: JsonObject) -> Iterable[tuple[str, str]]:
    """Yield reasoning texts and their signatures, from the various forms in LangChain."""
    for block in as_list(chunk.get("content")):
        match block:
            case {"type": "thinking"}:
                yield str(block.get("thinking") or ""), str(block.get("signature") or "")
            case {"type": "reasoning_content", "reasoning_content": {**inner}}:
                yield str(inner.get("text") or ""), str(inner.get("signature") or "")
            case {"type": "reasoning", "reasoning": str(thought)}:
                yield thought, ""
            case {"type": "reasoning", "summary": [*parts]}:
                yield "".join(str(part.get("text") or "") for part in as_objects(parts)), ""
            case _:
                pass
    further = get_object(chunk, "additional_kwargs")
    if isinstance(thought := further.get("reasoning_content"), str) and thought:
        yield thought, ""
    for part in as_objects(get_object(further, "reasoning").get("summary")):
        yield str(part.get("text") or ""), ""


def _translate_usage(usage: JsonObject, output: JsonObject, metadata: JsonObject) -> Usage:
    response = get_object(output, "response_metadata")
    input = get_object(usage, "input_token_details")
    model = metadata.get("ls_model_name") or response.get("model_name") or response.get("model")
    return Usage(
        model=str(model or ""),
        provider=str(metadata.get("ls_provider") or ""),
        input_tokens=as_count(usage.get("input_tokens")),
        output_tokens=as_count(usage.get("output_tokens")),
        cached_tokens=as_count(input.get("cache_read")),
        cache_write_tokens=as_count(input.get("cache_creation")),
        reasoning_tokens=as_count(get_object(usage, "output_token_details").get("reasoning")),
        stop_reason=read_stop_reason(response),
    )


@dataclass(slots=True)
class _Tool:
    """A tool that runs: the agent that called it, and the kind of agent that its input names."""

    caller: str | None
    kind: str | None
    namespace: str
    subagent: str | None = None


class SubagentTracker:
    """Follows the tools that run. The id of a subagent is that of its tool's run."""

    def __init__(self) -> None:
        self._tools: dict[str, _Tool] = {}
        self._namespaces: set[str] = set()

    def start_tool(self, event: JsonObject) -> None:
        """Record a tool (`on_tool_start`)."""
        metadata = get_object(event, "metadata")
        input = as_object(get_object(event, "data").get("input"))
        self._tools[str(event.get("run_id"))] = _Tool(
            caller=as_optional_text(metadata.get("lc_agent_name")),
            kind=as_optional_text(input.get("subagent_type")),
            namespace=str(metadata.get("langgraph_checkpoint_ns")),
        )

    def start_chain(self, event: JsonObject, metadata: JsonObject) -> list[Event]:
        """Return the start of a subagent if this is the first chain of it (`on_chain_start`)."""
        name = as_optional_text(metadata.get("lc_agent_name"))
        parents = reversed(as_list(event.get("parent_ids"))) if name and self._tools else ()
        id = next((id for id in parents if isinstance(id, str) and id in self._tools), None)
        if id is None:
            return []
        tool = self._tools[id]
        # runnables that are no agents have the name of the agent that called the tool
        if tool.subagent is not None or (tool.kind is None and name == tool.caller):
            return []
        tool.subagent = tool.kind or name
        self._namespaces.add(tool.namespace)
        return [Subagent(subagent_id=id, status="started", name=tool.subagent)]

    def finish_tool(self, event: JsonObject, results: Sequence[JsonObject]) -> list[Event]:
        """Return the end of a tool's subagent; `results` are the tool's (`on_tool_end`)."""
        id = str(event.get("run_id"))
        tool = self._tools.pop(id, None)
        if tool is None or tool.subagent is None:
            return []
        result = extract_text(results[0].get("content")) if results else None
        return [Subagent(subagent_id=id, status="finished", result=result)]

    def fail_tool(self, event: JsonObject) -> list[Event]:
        """Return the failure of a tool's subagent, unless it is interrupted (`on_tool_error`)."""
        if _is_interrupt(get_object(event, "data").get("error")):
            return []
        id = str(event.get("run_id"))
        tool = self._tools.pop(id, None)
        if tool is None or tool.subagent is None:
            return []
        # the text of the exception may be secret
        message = f"The subagent {tool.subagent!r} failed."
        return [Subagent(subagent_id=id, status="failed", message=message)]

    def finish_all(self) -> list[Event]:
        """Return the ends of the subagents that an interrupt has left, the innermost first."""
        ids = [id for id, tool in self._tools.items() if tool.subagent is not None]
        self._tools.clear()
        return [Subagent(subagent_id=id, status="finished") for id in reversed(ids)]

    def contains(self, namespace: str) -> bool:
        """Return whether a namespace is that of a subagent or nested in it."""
        return any(f"{namespace}|".startswith(f"{prefix}|") for prefix in self._namespaces)


def _is_interrupt(error: Any) -> bool:
    """Return whether the error of a tool, an exception or its JSON, is an interrupt in the tool."""
    name = error.get("error") if isinstance(error, dict) else type(error).__name__
    return name == "GraphInterrupt"
