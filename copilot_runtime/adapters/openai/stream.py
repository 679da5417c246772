"""Translates chunks of OpenAI's chat completions API, and of compatible servers, into events.

https://platform.openai.com/docs/api-reference/chat-streaming. A complete `chat.completion` is read
as one chunk, because some proxies ignore `stream`.
"""

from typing import Any

import orjson

from copilot_runtime.adapters.added_fields import FieldPieces
from copilot_runtime.adapters.attachments import image_activity_from_url
from copilot_runtime.adapters.errors import Service, read_stream_error
from copilot_runtime.adapters.invalid_answers import find_malformed_answer
from copilot_runtime.adapters.json_reader import JSONReader
from copilot_runtime.adapters.openai.answers import NAMES, THOUGHTS
from copilot_runtime.adapters.provider_errors import find_error
from copilot_runtime.adapters.stop_reasons import STOP_REASONS, map_stop_reason
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.events import Event, Usage
from copilot_runtime.base.jsonvalue import JsonObject, as_count, as_object, get_text
from copilot_runtime.telemetry.genai import describe_openai
from copilot_runtime.telemetry.span import Span

_READ = frozenset(
    {
        *("annotations", "audio", "content", "function_call", "images", "name", "refusal"),
        *("role", "tool_call_id", "tool_calls"),
        "executed_tools",  # Groq
        *("context", "end_turn"),  # Azure
        *("audio_content", "logprobs", "obfuscation", "token_id", "token_ids", "type"),
    }
)
"""The fields of a message that are read, or that are in responses only; others are sent back."""
_CALL = frozenset({"function", "id", "index", "type"})
_FUNCTION = frozenset({"arguments", "index", "name"})
"""The same for a call."""

_FAILED = {
    "error": "The answer broke off with an error.",
    # https://api-docs.deepseek.com/api/create-chat-completion
    "insufficient_system_resource": "The system has too few resources to finish the answer.",
}
"""Stop reasons of a failed response → the sentence if it has no error."""


class CompletionReader(JSONReader):
    """Reads one response of `provider`, a name in `ADAPTERS`."""

    def __init__(self, request: ChatRequest, service: Service, *, provider: str) -> None:
        super().__init__(request, service)
        self._provider = provider
        self._begun = False
        self._response: JsonObject = {}
        """The first chunk of the response."""
        self._thinks = False
        self._names: dict[str, None] = {}
        """Those of `THOUGHTS` in which reasoning has come."""
        self._added = FieldPieces()
        """Other fields that the service has added to the message."""
        self._called = False
        self._usage: JsonObject | None = None
        self._refused = False

    def describe(self, span: Span) -> None:
        """Add the id, model and stop reason of the response to the span of the request."""
        super().describe(span)
        describe_openai(span, self._response, "chat_completions")

    def _conclude(self) -> list[Event]:
        """Return the `Usage` if there are counts or a stop reason."""
        if self._added and (added := self._join_fields()):
            self._assembly.add_answer_fields(added)
        if self._usage is None and self._stop in (None, "stop", "tool_calls"):
            return []
        return [build_usage(self._model, self._provider, self._usage, self._stop)]

    def _take(self, data: JsonObject) -> None:
        choices = data.get("choices")
        if not choices:
            self._take_aside(data)
            return
        if not self._begun:
            self._begun, self._response = True, data
            self._assembly.begin(data.get("id") or "")
            self._model = get_text(data, "model") or self._model
        for choice in choices:
            if choice.get("index"):  # of further answers, none is read
                continue
            delta = choice.get("delta") or choice.get("message") or {}
            content = delta.get("content")
            if content and type(content) is str and len(delta) == 1 and not self._thinks:
                self._assembly.text(content)  # nearly every chunk has nothing else
            else:
                if delta:
                    self._take_delta(delta)
                if choice.get("error"):
                    self._raise_error(data)
            if reason := choice.get("finish_reason"):
                if reason in _FAILED:
                    error = find_error(data) or {"code": reason, "message": _FAILED[reason]}
                    raise read_stream_error(self._service, error)
                self._finish(reason, choice.get("native_finish_reason"))
        if data.get("usage") or data.get("error") or "x_groq" in data:
            self._take_aside(data)

    def _take_delta(self, delta: JsonObject) -> None:
        assembly = self._assembly
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if thought and isinstance(thought, str):
            self._thinks = True
            assembly.reasoning(thought)
        if not _READ.issuperset(delta):
            self._take_fields(delta, thought)
        if self._thinks and (delta.get("content") or delta.get("tool_calls")):
            self._end_thought()
        if content := delta.get("content"):
            if isinstance(content, str):
                assembly.text(content)
            else:
                self._take_parts(content)
        if refusal := delta.get("refusal"):
            self._refused = True
            assembly.text(str(refusal))
        for image in delta.get("images") or ():
            self._take_image(image["image_url"]["url"])
        if calls := delta.get("tool_calls"):
            for call in calls:
                self._take_call(call)

    def _take_parts(self, parts: list[JsonObject]) -> None:
        """Read content in parts, as Mistral's reasoning models send it."""
        for part in parts:
            if text := part.get("text"):
                self._assembly.text(str(text))
            for thought in part.get("thinking") or ():
                if text := thought.get("text"):
                    self._assembly.reasoning(str(text))

    def _take_call(self, call: JsonObject) -> None:
        self._called = True
        function = call.get("function") or {}
        arguments = function.get("arguments") or ""
        if not isinstance(arguments, str):  # Ollama once sent the object itself
            arguments = orjson.dumps(arguments).decode()
        added: JsonObject | None = None
        if not _CALL.issuperset(call) or not _FUNCTION.issuperset(function):
            added = _added_call_fields(call, function)
        self._assembly.call(
            call.get("index"), call.get("id") or "", function.get("name") or "", arguments, added
        )

    def _take_image(self, url: str) -> None:
        """Read a generated image, as OpenRouter sends it."""
        self._assembly.end_block()
        self._assembly.events.append(image_activity_from_url(url))

    def _take_fields(self, delta: JsonObject, thought: Any) -> None:
        """Keep the fields that the service has added to the message."""
        for name, value in delta.items():
            if name in _READ or value is None:
                continue
            if value and value == thought and name in THOUGHTS:
                self._names[name] = None
            else:
                self._added.add({name: value})

    def _join_fields(self) -> JsonObject:
        """Return the fields for the whole answer.

        An empty thought is one of them if calls followed: DeepSeek refuses calls without one.
        https://api-docs.deepseek.com/guides/thinking_mode
        """
        return {
            name: value
            for name, value in self._added.join().items()
            if name not in self._names
            and (value not in ("", [], {}) or (self._called and name in THOUGHTS))
        }

    def _end_thought(self) -> None:
        self._thinks = False
        self._assembly.add_thought_fields({NAMES: [*self._names]})

    def _finish(self, reason: str, native_reason: str | None) -> None:
        """End the answer; OpenRouter sends the provider's own reason beside it."""
        stop = map_stop_reason(reason)
        if stop == "content_filter":
            raise self._service.content_filter_error()
        if native_reason or reason not in STOP_REASONS:
            for word in (reason, native_reason or ""):
                if (error := find_malformed_answer(self._service, word)) is not None:
                    raise error
            if native_reason and map_stop_reason(native_reason) == "length":
                stop = "length"
        self.finished = True
        self._stop = "refusal" if self._refused else stop
        if not self._awaits_usage():
            super()._end_answer()  # some send more chunks after the finish reason

    def _awaits_usage(self) -> bool:
        """Return whether only the counts of tokens will say if the calls are whole.

        vLLM ends a call that its limit has cut off with `tool_calls`:
        https://github.com/vllm-project/vllm/issues/53269
        """
        return self._stop == "tool_calls" and self._request.parameters.max_tokens is not None

    def _end_answer(self) -> None:
        if self._awaits_usage():
            written = as_count(as_object(self._usage).get("completion_tokens"))
            if written is not None and written >= (self._request.parameters.max_tokens or 0):
                self._stop = "length"
        super()._end_answer()

    def _take_aside(self, chunk: JsonObject) -> None:
        """Read a chunk without content: errors, token counts, Azure's filter results."""
        self._raise_error(chunk)
        groq = chunk.get("x_groq") or {}
        if error := groq.get("error"):
            raise read_stream_error(self._service, {"message": error})
        if usage := chunk.get("usage") or groq.get("usage"):
            self._usage = usage  # some count in every chunk, and the last one counts all
            self._model = get_text(chunk, "model") or self._model


def _added_call_fields(call: JsonObject, function: JsonObject) -> JsonObject:
    """Return the fields that the service has added to a call, and to its function."""
    added = {name: call[name] for name in call if name not in _CALL and call[name] is not None}
    if inner := {name: function[name] for name in function if name not in _FUNCTION}:
        added["function"] = inner
    return added


def build_usage(
    model: str,
    provider: str,
    usage: JsonObject | None,
    stop_reason: str | None,
    *,
    names: tuple[str, str] = ("prompt", "completion"),
) -> Usage:
    """Return the `Usage` of one response; `names` are the API's prefixes for input and output."""
    usage, (question, answer) = as_object(usage), names
    read = as_object(usage.get(f"{question}_tokens_details"))
    written = as_object(usage.get(f"{answer}_tokens_details"))
    cached = read.get("cached_tokens")
    if not cached:
        cached = usage.get("prompt_cache_hit_tokens", cached)  # DeepSeek
    return Usage(
        model=model,
        provider=provider,
        input_tokens=as_count(usage.get(f"{question}_tokens")),
        output_tokens=as_count(usage.get(f"{answer}_tokens")),
        cached_tokens=as_count(cached),
        cache_write_tokens=as_count(read.get("cache_write_tokens")),
        reasoning_tokens=as_count(written.get("reasoning_tokens")),
        stop_reason=stop_reason,
    )
