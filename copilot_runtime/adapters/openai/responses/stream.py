"""Translates the events of OpenAI's Responses API into ours.

https://platform.openai.com/docs/api-reference/responses-streaming. All content except deltas is
sent two or three times (`.done`, `output_item.done`, `response.completed`): only the first is read.
Other servers omit some of these, so an item without deltas is read when it is complete.
"""

from collections.abc import Callable, Mapping
from typing import cast

import orjson

from copilot_runtime.adapters.attachments import image_activity
from copilot_runtime.adapters.errors import Service, read_stream_error
from copilot_runtime.adapters.openai.stream import build_usage
from copilot_runtime.adapters.reader import JSONReader
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.events import Event, Usage
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.telemetry.genai import describe_openai
from copilot_runtime.telemetry.span import Span

SIGNER = "openai"
"""The signer of reasoning. A signature is JSON with a reasoning item's id and encrypted text."""

_STOPS = {"max_output_tokens": "length"}


class ResponseEventReader(JSONReader):
    """Reads one response of `provider`, a name in `ADAPTERS`. Its last event sets `done`."""

    def __init__(self, request: ChatRequest, service: Service, *, provider: str) -> None:
        super().__init__(request, service)
        self._provider = provider
        self._usage = Usage(model=service.model, provider=provider)
        self._response: JsonObject = {}
        """The response object of the first event, replaced by that of the last one."""
        self._called = False
        self._refused = False
        self._thoughts: dict[int, int] = {}  # output index → the summary part that is open
        self._read_items: set[int] = set()  # output indexes of items whose content was read
        self._handlers: Mapping[str, Callable[[JsonObject], None]] = {
            "error": self._fail,
            "response": self._read_json,
            "response.completed": self._complete,
            "response.created": self._begin,
            "response.failed": self._fail_response,
            "response.function_call_arguments.delta": self._arguments,
            "response.incomplete": self._incomplete,
            "response.output_item.added": self._begin_item,
            "response.output_item.done": self._end_item,
            "response.output_text.delta": self._text,
            "response.reasoning_summary_text.delta": self._think,
            "response.reasoning_text.delta": self._think,
            "response.refusal.delta": self._refusal,
        }

    def describe(self, span: Span) -> None:
        """Add the id, model and stop reason of the response to the span of the request."""
        super().describe(span)
        describe_openai(span, self._response, "responses")

    def end(self) -> list[Event]:
        """Return the `Usage` with the stop reason."""
        return [self._usage]

    def _take(self, data: JsonObject) -> None:
        handle = self._handlers.get(data.get("type") or data.get("object") or "")
        if handle is not None:
            handle(data)
        elif "error" in data:
            self._fail(data)

    def _begin(self, event: JsonObject) -> None:
        self._response = event["response"]
        self._assembly.begin(self._response.get("id") or "")

    def _text(self, event: JsonObject) -> None:
        if delta := event["delta"]:
            self._read_items.add(event.get("output_index") or 0)
            self._assembly.text(delta)

    def _refusal(self, event: JsonObject) -> None:
        self._refused = True
        self._text(event)

    def _think(self, event: JsonObject) -> None:
        at, part = event["output_index"], event.get("summary_index") or 0
        if self._thoughts.setdefault(at, part) != part:
            self._thoughts[at] = part
            self._assembly.reasoning("\n\n")
        if delta := event["delta"]:
            self._read_items.add(at)
            self._assembly.reasoning(delta)

    def _begin_item(self, event: JsonObject) -> None:
        item = event["item"]
        if item["type"] == "function_call":
            self._called = True
            at, arguments = event["output_index"], item.get("arguments") or ""
            if arguments:
                self._read_items.add(at)
            self._assembly.call(at, item.get("call_id") or "", item["name"], arguments)

    def _arguments(self, event: JsonObject) -> None:
        if delta := event["delta"]:
            self._read_items.add(event["output_index"])
            self._assembly.call(event["output_index"], "", "", delta)

    def _end_item(self, event: JsonObject) -> None:
        item, at = event["item"], event["output_index"]
        if at not in self._read_items:
            self._read_items.add(at)
            self._take_item(item, at)
        if item["type"] == "reasoning":
            if encrypted := item.get("encrypted_content"):
                value = orjson.dumps([item["id"], encrypted]).decode()
                self._assembly.sign(SIGNER, value)
            self._assembly.end_block()
        elif item["type"] == "function_call":
            self._assembly.end_call(at)
        elif item["type"] == "message":
            self._assembly.end_block()

    def _take_item(self, item: JsonObject, at: int) -> None:
        """Read the content of an item that came without deltas."""
        self._begin_item({"item": item, "output_index": at})
        for part, summary in enumerate(cast("list[JsonObject]", item.get("summary") or [])):
            self._think({"output_index": at, "summary_index": part, "delta": summary["text"]})
        for part in cast("list[JsonObject]", item.get("content") or []):
            if refusal := part.get("refusal"):
                self._refusal({"output_index": at, "delta": refusal})
            elif part["type"] == "output_text":
                self._text({"output_index": at, "delta": part["text"]})
        if item["type"] == "image_generation_call" and (image := item.get("result")):
            self._assembly.end_block()
            mime_type = f"image/{item.get('output_format') or 'png'}"
            self._assembly.events.append(image_activity(mime_type, image))

    def _take_items(self, response: JsonObject) -> None:
        for at, item in enumerate(response.get("output") or ()):
            if at not in self._read_items:
                self._end_item({"item": item, "output_index": at})

    def _complete(self, event: JsonObject) -> None:
        self._take_items(event["response"])
        self._finish(event["response"], "tool_calls" if self._called else "stop")

    def _incomplete(self, event: JsonObject) -> None:
        details = event["response"].get("incomplete_details") or {}
        reason = details.get("reason") or "incomplete"
        if reason == "content_filter":
            raise self._service.content_filter_error()
        self._finish(event["response"], _STOPS.get(reason, reason))

    def _finish(self, response: JsonObject, reason: str) -> None:
        self.finished = self.done = True
        self._response = response
        self._assembly.end()
        self._usage = build_usage(
            response.get("model") or self._service.model,
            self._provider,
            response.get("usage"),
            "refusal" if self._refused else reason,
            names=("input", "output"),
        )

    def _fail(self, event: JsonObject) -> None:
        raise read_stream_error(self._service, event.get("error") or event)

    def _fail_response(self, event: JsonObject) -> None:
        raise read_stream_error(self._service, event["response"].get("error"))

    def _read_json(self, response: JsonObject) -> None:
        """Read a response that is not a stream: some proxies ignore `stream`."""
        self._begin({"response": response})
        self._take_items(response)
        done = {"failed": self._fail_response, "incomplete": self._incomplete}
        done.get(response.get("status") or "", self._complete)({"response": response})
