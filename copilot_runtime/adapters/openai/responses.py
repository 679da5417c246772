"""OpenAI's Responses API: builds request bodies, and translates its events into ours.

https://platform.openai.com/docs/api-reference/responses. OpenAI stores nothing (`store` is false):
each request contains the whole conversation, with the model's signed reasoning. All content except
deltas is sent two or three times (`.done`, `output_item.done`, `response.completed`): only the
first is read. Other servers omit some of these, so an item without deltas is read when it is
complete.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import assert_never, cast

from copilot_runtime.adapters.added_fields import read_fields, select_own_fields
from copilot_runtime.adapters.attachments import (
    Media,
    add_types,
    build_data_url,
    build_result_parts,
    build_text,
    image_activity,
    name_document,
)
from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.context_window import find_profile
from copilot_runtime.adapters.errors import Service, read_stream_error
from copilot_runtime.adapters.history import (
    HistoryItem,
    Thought,
    ToolExchange,
    find_last_turn,
    fit_history,
    format_result,
)
from copilot_runtime.adapters.json_reader import JSONReader
from copilot_runtime.adapters.openai.content import encode_content, encode_for_service
from copilot_runtime.adapters.openai.request import (
    RequestOptions,
    build_response_format,
    build_tool_choice,
    choose_role,
    encode_call_id,
    select_parameters,
)
from copilot_runtime.adapters.openai.stream import build_usage
from copilot_runtime.adapters.provider_errors import find_error
from copilot_runtime.adapters.stop_reasons import map_stop_reason
from copilot_runtime.adapters.tools import build_tools
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.events import Event, Usage
from copilot_runtime.api.messages import ImageMessage, TextMessage
from copilot_runtime.api.run_input import Parameters
from copilot_runtime.base.jsonvalue import JsonObject, get_text
from copilot_runtime.telemetry.genai import describe_openai
from copilot_runtime.telemetry.span import Span

_API = "OpenAI's Responses API"


def build_response_body(
    request: ChatRequest,
    model: str,
    options: RequestOptions,
    capabilities: CapabilityFilter,
    context_tokens: int,
    origin: str = "",
) -> JsonObject:
    """Return the body of the request; encrypted reasoning is that of the service of `origin`."""
    parameters = select_parameters(request, model, options, capabilities)
    # by default a tool is strict, and its schema is altered
    tools = [{**_flatten(tool), "strict": False} for tool in build_tools(request.actions)]
    choice = build_tool_choice(parameters, options.preset.required) if tools else None
    reasoning = _reasoning(parameters, model, options)
    answer_format = build_response_format(parameters)
    items = fit_history(request, tools, context_tokens, origin, capabilities)
    body: JsonObject = {
        "model": model,
        "stream": True,
        "store": False,
        "input": _encode_input(items, model, options, capabilities, origin),
        "tools": tools or None,
        "tool_choice": _flatten(choice) if isinstance(choice, dict) else choice,
        "parallel_tool_calls": parameters.parallel_tool_calls if tools else None,
        "max_output_tokens": parameters.max_tokens,
        "temperature": parameters.temperature,
        "top_p": parameters.top_p,
        "reasoning": reasoning or None,
        "include": ["reasoning.encrypted_content"] if reasoning else None,
        "text": {"format": _flatten(answer_format)} if answer_format else None,
    }
    return {name: value for name, value in body.items() if value is not None}


def _flatten(value: JsonObject) -> JsonObject:
    """Return `{"type": "function", "function": {...}}` as one flat object."""
    kind = value["type"]
    return {"type": kind, **value[kind]}


def _reasoning(parameters: Parameters, model: str, options: RequestOptions) -> JsonObject:
    summary = options.reasoning_summary if find_profile(model).reasons else None
    reasoning = {"effort": parameters.reasoning_effort, "summary": summary}
    return {name: value for name, value in reasoning.items() if value is not None}


def _encode_input(
    items: Sequence[HistoryItem],
    model: str,
    options: RequestOptions,
    capabilities: CapabilityFilter,
    origin: str,
) -> list[JsonObject]:
    encoded: list[JsonObject] = []
    turn = find_last_turn(items)
    for at, item in enumerate(items):
        match item:
            case TextMessage() | ImageMessage():
                content = encode_content(item, _encode, "input_text", capabilities, new=at >= turn)
                role = choose_role(item, options.preset, model)
                encoded.append({**_text_fields(item, origin), "role": role, "content": content})
            case ToolExchange():
                encoded += _encode_exchange(item, capabilities)
            case Thought():
                encoded += _encode_thought(item)
            case _:
                assert_never(item)
    return encoded


def _text_fields(message: TextMessage | ImageMessage, origin: str) -> JsonObject:
    if isinstance(message, TextMessage) and message.extra:
        return select_own_fields(read_fields(message, origin) or {})
    return {}


def _encode_exchange(exchange: ToolExchange, capabilities: CapabilityFilter) -> list[JsonObject]:
    call, id = exchange.call, encode_call_id(exchange)
    encode = partial(encode_for_service, capabilities, _encode)
    parts = build_result_parts(exchange.result, encode)
    return [
        {
            **exchange.own_fields,
            "type": "function_call",
            "call_id": id,
            "name": call.name,
            "arguments": call.arguments,
        },
        {
            "type": "function_call_output",
            "call_id": id,
            "output": add_types(parts, "input_text") or format_result(exchange.result),
        },
    ]


def _encode_thought(thought: Thought) -> list[JsonObject]:
    """Return the reasoning item, with its id and its encrypted content."""
    if "encrypted_content" not in thought.fields:  # altered by a client
        return []
    summary = [{"type": "summary_text", "text": thought.content}] if thought.content else []
    return [{**thought.own_fields, "type": "reasoning", "summary": summary}]


def _encode(media: Media) -> JsonObject | str:
    """Return the content part, or the reason for a refusal."""
    match media.kind:
        case "image":
            if media.id:
                return {"type": "input_image", "detail": "auto", "file_id": media.id}
            url = media.url or build_data_url(media)
            return {"type": "input_image", "detail": "auto", "image_url": url}
        case "document":
            return _encode_document(media)
        case "audio" | "video":
            return f"{_API} takes no {media.kind}"


def _encode_document(media: Media) -> JsonObject:
    if media.id:
        return {"type": "input_file", "file_id": media.id}
    if media.url:
        return {"type": "input_file", "file_url": media.url}
    if part := build_text(media):
        return part
    name = name_document(media)
    return {"type": "input_file", "filename": name, "file_data": build_data_url(media)}


_MESSAGE = frozenset({"content", "id", "role", "status", "type"})
_CALL = frozenset({"arguments", "call_id", "id", "name", "output", "status", "type"})
"""The fields of items that are read; others, such as `phase`, are sent back."""


def _find_fields(item: JsonObject, standard: frozenset[str]) -> JsonObject:
    return {name: item[name] for name in item.keys() - standard if item[name] is not None}


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

    def _conclude(self) -> list[Event]:
        """Return the `Usage` with the stop reason."""
        return [self._usage]

    def _take(self, data: JsonObject) -> None:
        handle = self._handlers.get(data.get("type") or data.get("object") or "")
        if handle is not None:
            handle(data)
        else:
            self._raise_error(data)

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
            added = _find_fields(item, _CALL)
            self._assembly.call(at, item.get("call_id") or "", item["name"], arguments, added)

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
                added = {"id": item["id"], "encrypted_content": encrypted}
                self._assembly.add_thought_fields(added)
            self._assembly.end_block()
        elif item["type"] == "function_call":
            self._assembly.end_call(at)
        elif item["type"] == "message":
            if added := _find_fields(item, _MESSAGE):
                self._assembly.add_text_fields(added)
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
        self._take_items(event["response"])
        self._finish(event["response"], map_stop_reason(reason))

    def _finish(self, response: JsonObject, reason: str) -> None:
        self.finished = self.done = True
        self._response = response
        self._stop = "refusal" if self._refused else reason
        self._end_answer()
        self._usage = build_usage(
            get_text(response, "model") or self._service.model,
            self._provider,
            response.get("usage"),
            self._stop,
            names=("input", "output"),
        )

    def _fail(self, event: JsonObject) -> None:
        raise read_stream_error(self._service, find_error(event))

    def _fail_response(self, event: JsonObject) -> None:
        raise read_stream_error(self._service, event["response"].get("error"))

    def _read_json(self, response: JsonObject) -> None:
        """Read a response that is not a stream: some proxies ignore `stream`."""
        self._begin({"response": response})
        self._take_items(response)
        done = {"failed": self._fail_response, "incomplete": self._incomplete}
        done.get(response.get("status") or "", self._complete)({"response": response})
