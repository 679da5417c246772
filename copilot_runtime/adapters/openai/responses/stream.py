"""Events of OpenAI's Responses API to ours.

https://platform.openai.com/docs/api-reference/responses-streaming. Everything but deltas comes
twice or three times (`.done`, `output_item.done`, `response.completed`): only the first counts.
Imitations leave out some of it, so an item of which nothing was heard is taken when it is whole.
"""

from collections.abc import Callable, Mapping
from typing import cast

import orjson

from copilot_runtime.adapters.assembly import Assembly
from copilot_runtime.adapters.attachments import image_activity
from copilot_runtime.adapters.errors import Service, read_stream_error
from copilot_runtime.adapters.signatures import tag_signature
from copilot_runtime.errors import CopilotError
from copilot_runtime.events import Event, Usage
from copilot_runtime.interfaces import ChatRequest
from copilot_runtime.jsontext import loads
from copilot_runtime.jsonvalue import JsonObject

SIGNER = "openai"
"""Whose the signatures are: a pair in JSON, the id of a reasoning item and what is encrypted."""

_STOPS = {"max_output_tokens": "length"}


class ResponseEventReader:
    """One answer of the model of `provider`, as `ADAPTERS` calls it."""

    def __init__(self, request: ChatRequest, service: Service, *, provider: str) -> None:
        self.finished = False
        """True when the model has said why it stopped."""
        self.done = False
        """True when nothing follows: the last event says so, there is no other marker."""
        self.failure: CopilotError | None = None
        """What the provider reported; to be raised after the events that came before it."""
        self._service = service
        self._provider = provider
        self._assembly = Assembly(request)
        self._usage = Usage(model=service.model, provider=provider)
        self._called = False
        self._refused = False
        self._thoughts: dict[int, int] = {}  # output index → the summary part that is open
        self._heard: set[int] = set()  # output indexes of items whose content came already
        self._takes: Mapping[str, Callable[[JsonObject], None]] = {
            "error": self._fail,
            "response": self._whole,
            "response.completed": self._complete,
            "response.created": self._begin,
            "response.failed": self._failed,
            "response.function_call_arguments.delta": self._arguments,
            "response.incomplete": self._incomplete,
            "response.output_item.added": self._item,
            "response.output_item.done": self._item_done,
            "response.output_text.delta": self._text,
            "response.reasoning_summary_text.delta": self._think,
            "response.reasoning_text.delta": self._think,
            "response.refusal.delta": self._refusal,
        }

    def read(self, payloads: list[bytes]) -> list[Event]:
        """Return the events of a block of payloads."""
        events = self._assembly.events = []
        try:
            for payload in payloads:
                if payload != b"[DONE]":  # not of OpenAI; some imitations send it
                    self._read_one(payload)
        except CopilotError as error:
            self.failure = error
        return events

    def end(self) -> list[Event]:
        """Return what the answer cost and why it ended."""
        return [self._usage]

    def _read_one(self, payload: bytes) -> None:
        try:
            event = loads(payload)
            take = self._takes.get(event.get("type") or event.get("object") or "")
            if take is not None:
                take(event)
            elif "error" in event:
                self._fail(event)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise self._service.payload_error(payload) from error

    def _begin(self, event: JsonObject) -> None:
        self._assembly.begin(event["response"].get("id") or "")

    def _text(self, event: JsonObject) -> None:
        if delta := event["delta"]:
            self._heard.add(event.get("output_index") or 0)
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
            self._heard.add(at)
            self._assembly.reasoning(delta)

    def _item(self, event: JsonObject) -> None:
        item = event["item"]
        if item["type"] == "function_call":
            self._called = True
            at, arguments = event["output_index"], item.get("arguments") or ""
            if arguments:
                self._heard.add(at)
            self._assembly.call(at, item.get("call_id") or "", item["name"], arguments)

    def _arguments(self, event: JsonObject) -> None:
        if delta := event["delta"]:
            self._heard.add(event["output_index"])
            self._assembly.call(event["output_index"], "", "", delta)

    def _item_done(self, event: JsonObject) -> None:
        item, at = event["item"], event["output_index"]
        if at not in self._heard:
            self._heard.add(at)
            self._take_item(item, at)
        if item["type"] == "reasoning":
            if encrypted := item.get("encrypted_content"):
                value = orjson.dumps([item["id"], encrypted]).decode()
                self._assembly.sign(tag_signature(SIGNER, value))
            self._assembly.end_block()
        elif item["type"] == "function_call":
            self._assembly.end_call(at)
        elif item["type"] == "message":
            self._assembly.end_block()

    def _take_item(self, item: JsonObject, at: int) -> None:
        """Take the content of an item that came without deltas."""
        self._item({"item": item, "output_index": at})
        for part, summary in enumerate(cast("list[JsonObject]", item.get("summary") or [])):
            self._think({"output_index": at, "summary_index": part, "delta": summary["text"]})
        for part in cast("list[JsonObject]", item.get("content") or []):
            if refusal := part.get("refusal"):
                self._refusal({"output_index": at, "delta": refusal})
            elif part["type"] == "output_text":
                self._text({"output_index": at, "delta": part["text"]})
        if item["type"] == "image_generation_call" and (image := item.get("result")):
            self._assembly.end_block()
            made = image_activity(f"image/{item.get('output_format') or 'png'}", image)
            self._assembly.events.append(made)

    def _take_items(self, response: JsonObject) -> None:
        for at, item in enumerate(response.get("output") or ()):
            if at not in self._heard:
                self._item_done({"item": item, "output_index": at})

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
        self._assembly.end()
        usage = cast(JsonObject, response.get("usage") or {})
        into = cast(JsonObject, usage.get("input_tokens_details") or {})
        out = cast(JsonObject, usage.get("output_tokens_details") or {})
        self._usage = Usage(
            model=response.get("model") or self._service.model,
            provider=self._provider,
            input_tokens=usage.get("input_tokens") or 0,
            output_tokens=usage.get("output_tokens") or 0,
            cached_tokens=into.get("cached_tokens") or 0,
            cache_write_tokens=into.get("cache_write_tokens") or 0,
            reasoning_tokens=out.get("reasoning_tokens") or 0,
            stop_reason="refusal" if self._refused else reason,
        )

    def _fail(self, event: JsonObject) -> None:
        raise read_stream_error(self._service, event.get("error") or event)

    def _failed(self, event: JsonObject) -> None:
        raise read_stream_error(self._service, event["response"].get("error"))

    def _whole(self, response: JsonObject) -> None:
        """Take an answer that is no stream, because a proxy ignores `stream`."""
        self._begin({"response": response})
        self._take_items(response)
        done = {"failed": self._failed, "incomplete": self._incomplete}
        done.get(response.get("status") or "", self._complete)({"response": response})
