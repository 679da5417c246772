"""Translates the events of Anthropic's Messages API into ours.

https://platform.claude.com/docs/en/build-with-claude/streaming. Events and blocks of unknown types
are ignored, as the API's versioning policy requires. A complete `message` is read, too, because
some proxies ignore `stream`.
"""

from typing import Any

import orjson

from copilot_runtime.adapters.anthropic.request import PROVIDER
from copilot_runtime.adapters.errors import Service
from copilot_runtime.adapters.json_reader import JSONReader
from copilot_runtime.adapters.stop_reasons import map_stop_reason
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.events import Custom, Event, Usage
from copilot_runtime.base.errors import Refused
from copilot_runtime.base.jsonvalue import add_counts, as_count, get_object, get_text

_CALL = frozenset({"id", "input", "name", "type"})
_THOUGHT = frozenset({"thinking", "type"})
"""The fields of a call and of reasoning that are read; others are sent back."""


class MessageReader(JSONReader):
    """Reads one response of a Claude model, block by block."""

    def __init__(self, request: ChatRequest, service: Service) -> None:
        super().__init__(request, service)
        self._kinds: dict[int, str] = {}  # of the blocks that are open
        self._inputs: dict[int, Any] = {}  # arguments that came with the start of a call
        self._thought: dict[str, Any] = {}  # what the service wants back with the open reasoning
        self._usage: dict[str, Any] = {}

    def _conclude(self) -> list[Event]:
        """Return the `Usage` with the counts and the stop reason, after a warning if it is cut."""
        cut = [Custom(name="finish_reason", value="length")] if self._stop == "length" else []
        return [*cut, self._build_usage()]

    def _take(self, data: dict[str, Any]) -> None:
        match data["type"]:
            case "content_block_delta":
                self._take_delta(data["index"], data["delta"])
            case "content_block_start":
                self._begin_block(data["index"], data["content_block"])
            case "content_block_stop":
                self._end_block(data["index"])
            case "message_start":
                self._begin(data["message"])
            case "message_delta":
                self._count(data.get("usage"))
                self._finish(data["delta"])
            case "message_stop":
                self.done = True
            case "message":
                self._take_whole(data)
            case _:  # an error, a ping, and what newer versions of the API may send
                self._raise_error(data)

    def _take_delta(self, index: int, delta: dict[str, Any]) -> None:
        kind = delta["type"]
        if kind == "text_delta":
            if text := delta["text"]:
                self._assembly.text(text)
        elif kind == "input_json_delta":
            if (piece := delta["partial_json"]) and self._kinds.get(index) == "tool_use":
                self._inputs.pop(index, None)
                self._assembly.call(index, "", "", piece)
        elif kind == "thinking_delta":
            if thought := delta["thinking"]:
                self._assembly.reasoning(thought)
        elif kind == "signature_delta" and (signature := delta["signature"]):
            self._thought["signature"] = (self._thought.get("signature") or "") + signature

    def _begin(self, message: dict[str, Any]) -> None:
        self._model = get_text(message, "model") or self._model
        self._count(message.get("usage"))
        self._assembly.begin(message.get("id") or "")

    def _begin_block(self, index: int, block: dict[str, Any]) -> None:
        kind = self._kinds[index] = block["type"]
        assembly = self._assembly
        match kind:
            case "text":
                if block.get("text"):
                    assembly.text(block["text"])
            case "thinking":
                assembly.end_block()  # each thought has a signature of its own
                self._thought = {name: block[name] for name in block.keys() - _THOUGHT}
                if block.get("thinking"):
                    assembly.reasoning(block["thinking"])
            case "redacted_thinking":
                assembly.end_block()
                self._thought = {"data": block["data"]}
            case "tool_use":
                added = {name: block[name] for name in block.keys() - _CALL}
                assembly.call(index, block["id"], block["name"], "", added)
                if block.get("input"):
                    self._inputs[index] = block["input"]
            case _:  # tools that run at the provider's
                pass

    def _end_block(self, index: int) -> None:
        match self._kinds.pop(index, ""):
            case "tool_use":
                if arguments := self._inputs.pop(index, None):
                    self._assembly.call(index, "", "", orjson.dumps(arguments).decode())
                self._assembly.end_call(index)
            case "thinking" | "redacted_thinking":
                if self._assembly.is_thinking or any(self._thought.values()):
                    self._assembly.add_thought_fields(self._thought)
                self._assembly.end_block()
            case _:
                pass

    def _finish(self, delta: dict[str, Any]) -> None:
        reason = delta.get("stop_reason")
        if not reason:
            return
        self.finished = True
        self._stop = map_stop_reason(reason)
        self._end_answer()
        if reason == "refusal":
            self._assembly.events.append(self._build_usage())
            raise self._refusal_error(delta.get("stop_details") or {})

    def _take_whole(self, message: dict[str, Any]) -> None:
        self._begin(message)
        for index, block in enumerate(message["content"]):
            self._begin_block(index, block)
            self._end_block(index)
        self._finish(message)
        self.done = True

    def _count(self, usage: dict[str, Any] | None) -> None:
        """Update the counts; later counts are totals, and omit unchanged fields."""
        if usage:
            self._usage |= {name: value for name, value in usage.items() if value is not None}

    def _build_usage(self) -> Usage:
        counts, cached = self._usage, ("cache_read_input_tokens", "cache_creation_input_tokens")
        details = get_object(counts, "output_tokens_details")
        return Usage(
            model=self._model,
            provider=PROVIDER,
            input_tokens=add_counts(counts, "input_tokens", *cached),
            output_tokens=as_count(counts.get("output_tokens")),
            cached_tokens=as_count(counts.get(cached[0])),
            cache_write_tokens=as_count(counts.get(cached[1])),
            reasoning_tokens=as_count(details.get("thinking_tokens")),
            stop_reason=self._stop,
        )

    def _refusal_error(self, details: dict[str, Any]) -> Refused:
        """Return the error for an answer that the provider's classifiers stopped."""
        name = self._service.name
        category = f" ({details['category']})" if details.get("category") else ""
        return Refused(
            f"{name} refused to answer{category}. Please put the question differently.",
            hint=" ".join(
                filter(None, [f"Model: {self._model!r}.", details.get("explanation") or ""])
            ),
            kind="RefusalStopReason",
        )
