"""Events of Bedrock's `ConverseStream` to ours.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStreamOutput.html. Each
payload is an object with one member, as `event_stream` writes it. Blocks have numbers, and may
take turns.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping

from copilot_runtime.adapters.anthropic.turns import REDACTED
from copilot_runtime.adapters.attachments import image_activity
from copilot_runtime.adapters.bedrock.request import SIGNER
from copilot_runtime.adapters.errors import Service, build_error, read_stream_error
from copilot_runtime.adapters.reader import JSONReader
from copilot_runtime.adapters.signatures import tag_signature
from copilot_runtime.events import Event, Usage
from copilot_runtime.interfaces import ChatRequest
from copilot_runtime.jsonvalue import JsonObject

_STOPS = {
    "end_turn": "stop",
    "guardrail_intervened": "content_filter",  # in words that the application has chosen
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
}
_MALFORMED = ("malformed_model_output", "malformed_tool_use")


class ConverseReader(JSONReader):
    """Reads one response of `ConverseStream`."""

    def __init__(self, request: ChatRequest, service: Service) -> None:
        super().__init__(request, service)
        self._calls: set[int] = set()
        self._elsewhere: set[int] = set()  # blocks of tools that run at Amazon
        self._images: dict[int, tuple[str, list[str]]] = {}
        self._signatures: dict[int, list[str]] = {}
        self._redacted: dict[int, list[str]] = {}
        self._stop: str | None = None
        self._usage: JsonObject = {}
        self._takes: Mapping[str, Callable[[JsonObject], None]] = {
            "contentBlockStart": self._take_start,
            "contentBlockStop": self._take_stop,
            "messageStart": self._begin,
            "messageStop": self._finish,
            "metadata": self._take_counts,
        }

    def end(self) -> list[Event]:
        """Return the counts; without them, only why the model stopped."""
        return [_usage(self._service.model, self._usage, self._stop)]

    def _take(self, data: JsonObject) -> None:
        if delta := data.get("contentBlockDelta"):  # nearly always
            self._take_delta(delta)
            return
        for name, event in data.items():
            if take := self._takes.get(name):
                take(event)
            elif name == "error":
                raise read_stream_error(self._service, event)
            elif name.endswith(("Exception", "Error")):
                raise read_stream_error(self._service, {**event, "type": name})

    def _begin(self, event: JsonObject) -> None:
        del event  # it says only that the model is the assistant
        self._assembly.begin("")

    def _take_start(self, event: JsonObject) -> None:
        at, start = event["contentBlockIndex"], event["start"]
        if use := start.get("toolUse"):
            if use.get("type"):
                self._elsewhere.add(at)
            else:
                self._calls.add(at)
                self._assembly.call(at, use["toolUseId"], use["name"], "")
        elif image := start.get("image"):
            self._images[at] = (image["format"], [])

    def _take_delta(self, event: JsonObject) -> None:
        delta = event["delta"]
        if text := delta.get("text"):
            self._assembly.text(text)
        elif use := delta.get("toolUse"):
            at = event["contentBlockIndex"]
            if use["input"] and at not in self._elsewhere:
                self._assembly.call(at, "", "", use["input"])
        elif thought := delta.get("reasoningContent"):
            self._take_thought(event["contentBlockIndex"], thought)
        elif data := ((delta.get("image") or {}).get("source") or {}).get("bytes"):
            self._images[event["contentBlockIndex"]][1].append(data)

    def _take_thought(self, at: int, thought: JsonObject) -> None:
        if text := thought.get("text"):
            self._assembly.reasoning(text)
        elif signature := thought.get("signature"):
            self._signatures.setdefault(at, []).append(signature)
        elif content := thought.get("redactedContent"):
            self._redacted.setdefault(at, []).append(content)

    def _take_stop(self, event: JsonObject) -> None:
        at = event["contentBlockIndex"]
        assembly = self._assembly
        if at in self._calls:
            assembly.end_call(at)
        elif signature := self._signatures.pop(at, None):
            assembly.sign(tag_signature(SIGNER, "".join(signature)))
            assembly.end_block()
        elif content := self._redacted.pop(at, None):
            assembly.end_block()
            assembly.sign(tag_signature(SIGNER, REDACTED + _join(content)))
            assembly.end_block()
        elif (image := self._images.pop(at, None)) and image[1]:  # else it failed
            assembly.end_block()
            assembly.events.append(image_activity(f"image/{image[0]}", _join(image[1])))

    def _finish(self, event: JsonObject) -> None:
        reason = event["stopReason"]
        if reason == "content_filtered":
            raise self._service.content_filter_error()
        if reason in _MALFORMED:
            raise build_error(self._service, f"The model stopped with {reason}.", 502)
        self.finished = True
        self._stop = _STOPS.get(reason, reason)
        self._assembly.end()

    def _take_counts(self, event: JsonObject) -> None:
        self._usage = event.get("usage") or {}
        self.done = self.finished


def _join(pieces: list[str]) -> str:
    """Return one base64 text for several."""
    return pieces[0] if len(pieces) == 1 else b64encode(b"".join(map(b64decode, pieces))).decode()


def _usage(model: str, counts: JsonObject, stop: str | None) -> Usage:
    read = counts.get("cacheReadInputTokens") or 0
    written = counts.get("cacheWriteInputTokens") or 0
    return Usage(
        model=model,
        input_tokens=(counts.get("inputTokens") or 0) + read + written,
        output_tokens=counts.get("outputTokens") or 0,
        cached_tokens=read,
        cache_write_tokens=written,
        provider=SIGNER,
        stop_reason=stop,
    )
