"""Translates the chunks of Gemini's `streamGenerateContent` into events.

https://ai.google.dev/api/generate-content#generatecontentresponse. Each chunk is a response with
the new parts. Calls arrive complete; the stream has no end marker.
"""

import orjson

from copilot_runtime.adapters.attachments import image_activity
from copilot_runtime.adapters.errors import Service, build_error
from copilot_runtime.adapters.google.request import SIGNED
from copilot_runtime.adapters.invalid_answers import find_malformed_answer
from copilot_runtime.adapters.json_reader import JSONReader
from copilot_runtime.adapters.stop_reasons import map_stop_reason
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.events import Event, Usage
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsonvalue import JsonObject, add_counts, as_count, get_text

_FAILED = {
    *("MISSING_THOUGHT_SIGNATURE", "OTHER"),
    *("NO_IMAGE", "IMAGE_OTHER", "PUP_LIMITED_DISABLED"),
}
"""Stop reasons of a failed response: there is no answer, or a partial one."""
_FILTERED = {
    *("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"),
    *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "MODEL_ARMOR"),
    *("ESCALATION", "JAILBREAK"),
}


class GenerationReader(JSONReader):
    """Reads one response of Gemini."""

    def __init__(self, request: ChatRequest, service: Service) -> None:
        super().__init__(request, service)
        self._calls = 0
        self._usage: JsonObject = {}

    def _conclude(self) -> list[Event]:
        """Return the `Usage`: the counts of the last chunk are totals."""
        counts = self._usage
        usage = Usage(
            model=self._model,
            input_tokens=add_counts(counts, "promptTokenCount", "toolUsePromptTokenCount"),
            output_tokens=add_counts(counts, "candidatesTokenCount", "thoughtsTokenCount"),
            cached_tokens=as_count(counts.get("cachedContentTokenCount")),
            reasoning_tokens=as_count(counts.get("thoughtsTokenCount")),
            provider="google",
            stop_reason=self._stop,
        )
        return [usage]

    def _take(self, data: JsonObject | list[JsonObject]) -> None:
        # a list is an error in the middle, or an answer that is no stream
        for chunk in data if isinstance(data, list) else (data,):
            self._take_chunk(chunk)

    def _take_chunk(self, chunk: JsonObject) -> None:
        if "candidates" not in chunk or "error" in chunk:
            self._raise_error(chunk)
        if not self._assembly.answer_id:
            self._assembly.begin(chunk.get("responseId") or "")
        if usage := chunk.get("usageMetadata"):
            self._usage = {**self._usage, **usage}
        self._model = get_text(chunk, "modelVersion") or self._model
        candidates = chunk.get("candidates")
        if candidates:
            candidate = candidates[0]
            if content := candidate.get("content"):
                for part in content.get("parts") or ():
                    self._take_part(part)
            if reason := candidate.get("finishReason"):
                self._finish(reason, candidate.get("finishMessage") or "")
        elif reason := (chunk.get("promptFeedback") or {}).get("blockReason"):
            raise _block_error(self._service, reason, chunk["promptFeedback"])

    def _take_part(self, part: JsonObject) -> None:
        assembly = self._assembly
        text, signature = part.get("text"), part.get("thoughtSignature")
        if text:
            if part.get("thought"):
                assembly.reasoning(text)
            else:
                assembly.text(text)
        elif call := part.get("functionCall"):
            self._take_call(call, signature)
            return
        elif (blob := part.get("inlineData")) and not part.get("thought"):  # else it is a draft
            assembly.end_block()
            assembly.events.append(
                image_activity(blob.get("mimeType") or "image/png", blob["data"])
            )
        if signature and part.get("thought"):
            assembly.add_thought_fields({"thoughtSignature": signature})
        elif signature and text is not None:
            assembly.add_text_fields({"thoughtSignature": signature, SIGNED: len(text)})

    def _take_call(self, call: JsonObject, signature: str | None) -> None:
        at = self._calls
        self._calls += 1
        # Gemini also sends an empty object for arguments that were cut off
        values = call.get("args")
        arguments = orjson.dumps(values).decode() if values else ""
        added = {"thoughtSignature": signature} if signature else None
        self._assembly.call(at, call.get("id") or "", call["name"], arguments, added)
        self._assembly.end_call(at)

    def _finish(self, reason: str, message: str) -> None:
        if reason in _FILTERED:
            raise self._service.content_filter_error()
        if (error := find_malformed_answer(self._service, reason, message)) is not None:
            raise error
        if reason in _FAILED:
            about = f"The model stopped with {reason}. {message}".rstrip()
            raise build_error(self._service, about, 502)
        self.finished = True  # the answer ends later: older models give the reason with every chunk
        stop = map_stop_reason(reason)
        self._stop = "tool_calls" if self._calls and stop not in ("length", "pause") else stop


def _block_error(service: Service, reason: str, feedback: JsonObject) -> CopilotError:
    message = f"400 The prompt was blocked: {reason}. {feedback.get('blockReasonMessage') or ''}"
    return build_error(service, message.rstrip(), 400, codes=["content_filter"])
