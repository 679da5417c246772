"""Translates the events of Bedrock's `ConverseStream` into ours.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStreamOutput.html. Each
payload is an object with one member, as decoded by `event_stream`. Blocks have indexes, and may
interleave.
"""

from base64 import b64decode, b64encode

from copilot_runtime.adapters.anthropic.content import REDACTED
from copilot_runtime.adapters.attachments import image_activity
from copilot_runtime.adapters.bedrock.request import SIGNER
from copilot_runtime.adapters.errors import Service, build_error, read_stream_error
from copilot_runtime.adapters.reader import JSONReader
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.events import Event, Usage
from copilot_runtime.base.jsonvalue import JsonObject, add_counts, as_count, as_object

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
        self._elsewhere: set[int] = set()  # blocks of tools that run at Amazon
        self._pieces: dict[int, tuple[str, list[str]]] = {}
        """Block → the kind of its chunks, and chunks that can only be decoded together."""
        self._usage: JsonObject = {}

    def end(self) -> list[Event]:
        """Return the `Usage`; without counts, it has the stop reason only."""
        counts, cached = self._usage, ("cacheReadInputTokens", "cacheWriteInputTokens")
        usage = Usage(
            model=self._model,
            input_tokens=add_counts(counts, "inputTokens", *cached),
            output_tokens=as_count(counts.get("outputTokens")),
            cached_tokens=as_count(counts.get(cached[0])),
            cache_write_tokens=as_count(counts.get(cached[1])),
            provider=SIGNER,
            stop_reason=self._stop,
        )
        return [usage]

    def _take(self, data: JsonObject) -> None:
        if event := data.get("contentBlockDelta"):  # nearly always
            if text := event["delta"].get("text"):
                self._assembly.text(text)
            else:
                self._take_delta(event["contentBlockIndex"], event["delta"])
            return
        for name, event in data.items():
            match name:
                case "contentBlockStart":
                    self._take_start(event["contentBlockIndex"], event["start"])
                case "contentBlockStop":
                    self._take_stop(event["contentBlockIndex"])
                case "messageStart":
                    self._assembly.begin("")
                case "messageStop":
                    self._finish(event["stopReason"])
                case "metadata":
                    self._usage = as_object(event.get("usage"))
                    self.done = self.finished
                case "error":
                    raise read_stream_error(self._service, event)
                case _ if name.endswith(("Exception", "Error")):
                    raise read_stream_error(self._service, {**event, "type": name})
                case _:
                    pass

    def _take_start(self, at: int, start: JsonObject) -> None:
        if use := start.get("toolUse"):
            if use.get("type"):
                self._elsewhere.add(at)
            else:
                self._assembly.call(at, use["toolUseId"], use["name"], "")
        elif image := start.get("image"):
            self._pieces[at] = (f"image/{image['format']}", [])

    def _take_delta(self, at: int, delta: JsonObject) -> None:
        if use := delta.get("toolUse"):
            if use["input"] and at not in self._elsewhere:
                self._assembly.call(at, "", "", use["input"])
        elif thought := delta.get("reasoningContent"):
            self._take_thought(at, thought)
        elif data := ((delta.get("image") or {}).get("source") or {}).get("bytes"):
            self._pieces[at][1].append(data)

    def _take_thought(self, at: int, thought: JsonObject) -> None:
        if text := thought.get("text"):
            self._assembly.reasoning(text)
            return
        for name in ("signature", "redactedContent"):
            if piece := thought.get(name):
                self._pieces.setdefault(at, (name, []))[1].append(piece)

    def _take_stop(self, at: int) -> None:
        assembly = self._assembly
        assembly.end_call(at)
        match self._pieces.pop(at, None):
            case "signature", pieces:
                assembly.sign(SIGNER, "".join(pieces))
                assembly.end_block()
            case "redactedContent", pieces:
                assembly.end_block()
                assembly.sign(SIGNER, REDACTED + _join(pieces))
                assembly.end_block()
            case mime_type, pieces if pieces:  # else no image could be made
                assembly.end_block()
                assembly.events.append(image_activity(mime_type, _join(pieces)))
            case _:
                pass

    def _finish(self, reason: str) -> None:
        if reason == "content_filtered":
            raise self._service.content_filter_error()
        if reason in _MALFORMED:
            raise build_error(self._service, f"The model stopped with {reason}.", 502)
        self.finished = True
        self._stop = _STOPS.get(reason, reason)
        self._assembly.end()


def _join(pieces: list[str]) -> str:
    """Join several base64 texts into one."""
    return pieces[0] if len(pieces) == 1 else b64encode(b"".join(map(b64decode, pieces))).decode()
