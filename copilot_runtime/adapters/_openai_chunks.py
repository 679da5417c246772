"""Chunks of OpenAI's chat completions API, and of all who imitate it, to events.

https://platform.openai.com/docs/api-reference/chat-streaming. A whole `chat.completion` is read
as one chunk: some proxies ignore `stream`.
"""

from typing import Any, cast

import orjson

from copilot_runtime.adapters._assemble import Assembly
from copilot_runtime.adapters._failures import failure_inside
from copilot_runtime.errors import CopilotError, NetworkError, Refused
from copilot_runtime.events import Custom, Event, Usage
from copilot_runtime.interfaces import ChatRequest
from copilot_runtime.jsontext import loads


class Completion:
    """One answer of the model. `name` is how errors call the provider."""

    def __init__(self, request: ChatRequest, name: str, *, secret: str | None = None) -> None:
        self.finished = False
        """True when the model has said why it stopped."""
        self.done = False
        """True when nothing follows."""
        self.failure: CopilotError | None = None
        """What the provider reported; to be raised after the events that came before it."""
        self._name = name
        self._secret = secret
        self._assembly = Assembly(
            taken={message.id for message in request.messages},
            names=[action.name for action in request.actions],
        )
        self._begun = False

    def read(self, payloads: list[bytes]) -> list[Event]:
        """Return the events of a block of chunks."""
        events = self._assembly.events = []
        try:
            for payload in payloads:
                if payload == b"[DONE]":
                    self.done = True
                    break
                self._read_one(payload)
        except CopilotError as error:
            self.failure = error
        return events

    def _read_one(self, payload: bytes) -> None:
        try:
            chunk = loads(payload)
        except ValueError as error:
            raise self._unreadable(payload) from error
        try:
            self._take(chunk)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise self._unreadable(payload) from error

    def _take(self, chunk: dict[str, Any]) -> None:
        choices = chunk.get("choices")
        if not choices:
            self._take_aside(chunk)
            return
        if not self._begun:
            self._begun = True
            self._assembly.begin(chunk.get("id") or "")
        for choice in choices:
            if not choice.get("index"):
                self._take_choice(choice)
        if chunk.get("usage") or chunk.get("error"):
            self._take_aside(chunk)

    def _take_choice(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta") or choice.get("message") or {}
        assembly = self._assembly
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if thought and type(thought) is str:
            assembly.reasoning(thought)
        if content := delta.get("content"):
            if type(content) is str:
                assembly.text(content)
            else:
                self._take_parts(content)
        if refusal := delta.get("refusal"):
            assembly.text(str(refusal))
        if calls := delta.get("tool_calls"):
            for call in calls:
                self._take_call(call)
        if reason := choice.get("finish_reason"):
            self._finish(reason)

    def _take_parts(self, parts: list[dict[str, Any]]) -> None:
        """Take content in parts, as Mistral's thinking models send it."""
        for part in parts:
            if text := part.get("text"):
                self._assembly.text(str(text))
            for thought in part.get("thinking") or ():
                if text := thought.get("text"):
                    self._assembly.reasoning(str(text))

    def _take_call(self, call: dict[str, Any]) -> None:
        function = call.get("function") or {}
        arguments = function.get("arguments") or ""
        if type(arguments) is not str:  # Ollama once sent the object itself
            arguments = orjson.dumps(arguments).decode()
        self._assembly.call(
            call.get("index"), call.get("id") or "", function.get("name") or "", arguments
        )

    def _finish(self, reason: str) -> None:
        if reason == "content_filter":
            raise Refused(
                f"The content filter of {self._name} stopped the answer. "
                "Please put the question differently.",
                kind="ContentFilterFinishReasonError",
            )
        if reason == "error":
            raise failure_inside(self._name, None)
        self.finished = True
        self._assembly.end()
        if reason == "length":
            self._assembly.events.append(Custom(name="finish_reason", value="length"))

    def _take_aside(self, chunk: dict[str, Any]) -> None:
        """Take what is no part of the answer: errors, token counts, Azure's filter results."""
        if error := chunk.get("error"):
            raise failure_inside(self._name, error, secret=self._secret)
        if chunk.get("object") == "error":  # vLLM
            raise failure_inside(self._name, chunk, secret=self._secret)
        if usage := chunk.get("usage"):
            self._assembly.events.append(_usage(chunk.get("model") or "", usage))

    def _unreadable(self, payload: bytes) -> NetworkError:
        start = payload[:100].decode(errors="replace")
        return NetworkError(
            f"{self._name} API error: The answer is not a stream of chat completion chunks.",
            kind=f"{self._name}Error",
            hint=f"Is the base URL right? It sent {start!r}.",
        )


def _usage(model: str, usage: dict[str, Any]) -> Usage:
    into = cast("dict[str, Any]", usage.get("prompt_tokens_details") or {})
    out = cast("dict[str, Any]", usage.get("completion_tokens_details") or {})
    return Usage(
        model=model,
        input_tokens=usage.get("prompt_tokens") or 0,
        output_tokens=usage.get("completion_tokens") or 0,
        cached_tokens=into.get("cached_tokens") or 0,
        reasoning_tokens=out.get("reasoning_tokens") or 0,
    )
