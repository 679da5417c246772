"""Translates the output of LangChain's chat models and runnables into our events.

Chat models yield `AIMessageChunk`, chains the output of their last step: text, messages, objects.
"""

from collections.abc import Mapping
from typing import Any, cast

from copilot_runtime.adapters.added_fields import FieldPieces
from copilot_runtime.adapters.errors import Service
from copilot_runtime.adapters.invalid_answers import find_malformed_answer
from copilot_runtime.adapters.json_reader import JSONReader
from copilot_runtime.adapters.langchain.request import PROVIDER
from copilot_runtime.adapters.stop_reasons import read_stop_reason
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.events import Custom, Event, Usage
from copilot_runtime.base.jsontext import dumps, mark_halves
from copilot_runtime.base.jsonvalue import JsonObject, as_count, as_object, drop_none, get_text

_TEXTS = ("output", "answer", "content", "text", "result", "response")
_THOUGHTS = ("thinking", "reasoning", "reasoning_content")
_PASSING = ("type", "index", *_THOUGHTS)
_READ = frozenset({"audio", "function_call", "parsed", "refusal", "tool_calls"})
"""The `additional_kwargs` that are read, or that are in responses only; others are sent back."""
_ROLES = ("ai", "assistant", "AIMessageChunk")


class ChunkReader(JSONReader):
    """Translates the chunks of one answer, of any type, into events."""

    def __init__(self, request: ChatRequest, service: Service) -> None:
        super().__init__(request, service)
        self._begun = False
        self._thought: tuple[Any, FieldPieces] | None = None  # index and block
        self._added = FieldPieces()  # `additional_kwargs`
        self._usage: JsonObject = {}  # of all chunks together

    def _end_answer(self) -> None:
        self._end_thought()
        super()._end_answer()

    def _conclude(self) -> list[Event]:
        """Return the warning for an answer that was cut off, and the `Usage`."""
        if self._added:
            self._assembly.add_answer_fields(self._added.join())
        events: list[Event] = []
        if self._stop == "length":
            events.append(Custom(name="finish_reason", value="length"))
        if self._usage or self._stop:
            usage = Usage(
                model=self._model, provider=PROVIDER, stop_reason=self._stop, **self._usage
            )
            events.append(usage)
        return events

    def _take(self, data: Any) -> None:
        match data:
            case None:
                pass
            case str():
                self._take_text(data)
            case Mapping():
                self._take_object(cast("Mapping[str, Any]", data))
            case list():
                self._take_last(cast("list[Any]", data))
            case _ if getattr(data, "type", None) in _ROLES:
                self._take_message(data)
            case _ if getattr(data, "type", None) and hasattr(data, "content"):
                pass  # questions and results of tools: the conversation has them already
            case _ if hasattr(data, "model_dump_json"):
                self._take_text(data.model_dump_json())
            case _:
                self._take_text(str(data))

    def _take_text(self, text: str) -> None:
        if text:
            self._end_thought()
            self._assembly.text(mark_halves(text))

    def _take_object(self, value: Mapping[str, Any]) -> None:
        """Read the answer in an object; an object without one is the answer itself, as JSON."""
        if messages := value.get("messages"):
            self._take_last(messages)
            return
        for name in _TEXTS:
            if name in value:
                self._take(value[name])
                return
        self._take_text(dumps(value).decode())

    def _take_last(self, values: Any) -> None:
        """Read the last of several messages, which is the answer."""
        if values:
            self._take(values[-1])

    def _take_message(self, chunk: Any) -> None:
        if not self._begun:
            self._begun = True
            self._assembly.begin(chunk.id or "")
        for name, value in chunk.additional_kwargs.items():
            if name not in _READ:
                self._added.add({name: value})
        if thought := chunk.additional_kwargs.get("reasoning_content"):
            self._assembly.reasoning(mark_halves(str(thought)))
        if isinstance(chunk.content, str):
            self._take_text(chunk.content)
        else:
            for block in chunk.content:
                self._take_block(block)
        for call in _calls_in(chunk):
            self._end_thought()
            self._assembly.call(*call)
        self._count(chunk.usage_metadata or {})
        self._finish(chunk.response_metadata)

    def _take_block(self, block: str | JsonObject) -> None:
        if isinstance(block, str):
            self._take_text(block)
        elif block.get("type") in ("text", "output_text"):
            self._take_text(block.get("text") or "")
        elif block.get("type") in _THOUGHTS:
            self._take_thought(block)

    def _take_thought(self, block: JsonObject) -> None:
        index = block.get("index")
        if self._thought is None or self._thought[0] != index:
            self._end_thought()
            self._thought = (index, FieldPieces())
            self._thought[1].add({"type": block["type"]})
        words = next((block[name] for name in _THOUGHTS if block.get(name)), "")
        if isinstance(words, str) and words:
            self._assembly.reasoning(mark_halves(words))
        more = {name: block[name] for name in block if name not in _PASSING}
        self._thought[1].add(drop_none(more))

    def _end_thought(self) -> None:
        """Sign the reasoning with its complete block, so that it can be sent back unchanged."""
        if self._thought is None:
            return
        fields, self._thought = self._thought[1].join(), None
        if len(fields) > 1:
            self._assembly.add_thought_fields(fields)
        self._assembly.end_block()

    def _count(self, usage: JsonObject) -> None:
        into = as_object(usage.get("input_token_details"))
        out = as_object(usage.get("output_token_details"))
        counts = {
            "input_tokens": usage.get("input_tokens"),
            "output_tokens": usage.get("output_tokens"),
            "cached_tokens": into.get("cache_read"),
            "cache_write_tokens": into.get("cache_creation"),
            "reasoning_tokens": out.get("reasoning"),
        }
        for name, value in counts.items():
            if (count := as_count(value)) is not None:
                self._usage[name] = self._usage.get(name, 0) + count

    def _finish(self, metadata: JsonObject) -> None:
        self._model = get_text(metadata, "model_name") or get_text(metadata, "model") or self._model
        if (reason := read_stop_reason(metadata)) is not None:
            self._stop = reason
            self.failure = find_malformed_answer(self._service, reason) or self.failure
        if self._stop in ("content_filter", "refusal"):
            self.failure = self._service.content_filter_error()


def _calls_in(message: Any) -> list[tuple[int | None, str, str, str]]:
    """Return the pieces of calls: index, id, name, arguments."""
    if pieces := getattr(message, "tool_call_chunks", None):
        return [
            (
                piece.get("index"),
                piece.get("id") or "",
                piece.get("name") or "",
                mark_halves(piece["args"] or ""),
            )
            for piece in pieces
        ]
    # LangChain keeps calls whose arguments it cannot parse apart, with the text
    unreadable = getattr(message, "invalid_tool_calls", None) or ()
    return [
        (None, call.get("id") or "", call.get("name") or "", _encode_arguments(call["args"]))
        for call in (*message.tool_calls, *unreadable)
    ]


def _encode_arguments(arguments: Any) -> str:
    """Return arguments as JSON; empty ones, which may have been cut off, as an empty text."""
    if isinstance(arguments, str):
        return arguments
    return dumps(arguments).decode() if arguments else ""
