"""The presets of services with OpenAI's chat completions API, and the bodies of requests to it."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, assert_never, cast

from copilot_runtime.adapters.attachments import (
    Media,
    MediaEncoder,
    add_types,
    build_data_url,
    build_parts,
    build_text,
    decode_text,
    has_media,
)
from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.context_window import find_profile
from copilot_runtime.adapters.history import (
    HistoryItem,
    Thought,
    ToolExchange,
    find_last_turn,
    fit_history,
    format_result,
)
from copilot_runtime.adapters.parameters import has_values
from copilot_runtime.adapters.tools import build_tools, required_tool
from copilot_runtime.adapters.turns import GO_ON
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.messages import ImageMessage, TextMessage
from copilot_runtime.api.run_input import Parameters
from copilot_runtime.base.dataclass_copy import copy_with
from copilot_runtime.base.jsonvalue import JsonObject

MaxTokensName = Literal["max_completion_tokens", "max_tokens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One service. `adapter` is its name in the table of adapters, `name` is for people."""

    adapter: str
    name: str
    base_url: str
    """Empty: it must be given."""
    model: str = ""
    """The model where a request names none; empty: one must be named."""
    key_variable: str
    url_variable: str = ""
    needs_key: bool = True
    """Whether requests to its own address need a key."""
    key_header: str = "authorization"
    """Where the key goes; in `authorization` it is a bearer's."""
    max_tokens_name: MaxTokensName = "max_tokens"
    seed_name: str = "seed"
    required: str = "required"
    """Its word for the choice `required`."""
    takes_no_choice: bool = False
    """It ignores `tool_choice`: for `none`, no tools are sent."""
    asks_for_usage: bool = True
    """Whether `stream_options` requests token counts; some services refuse it."""
    developer_role: bool | None = False
    """It supports the role; None: at the default base URL, elsewhere by the model's profile."""
    strict_order: bool = False
    """It requires instructions first, a model message after each result, and the user's last."""
    call_id_length: int | None = None
    """The exact length of call ids, which are letters and digits."""
    wants_thoughts: bool = False
    """The model's reasoning is sent back to it, with the calls that followed."""
    routes_by_deployment: bool = False
    """With an `api_version`, the model is a part of the address."""

    def is_at(self, url: str) -> bool:
        """Return whether `url` is the service's default base URL."""
        return bool(self.base_url) and url.rstrip("/") == self.base_url

    def uses_developer_role(self, model: str) -> bool:
        """Return whether the role of instructions is `developer` instead of `system`."""
        if self.developer_role is None:
            return find_profile(model).developer_role
        return self.developer_role


OPENAI = Preset(
    adapter="openai",
    name="OpenAI",
    base_url="https://api.openai.com/v1",
    model="gpt-4o",
    key_variable="OPENAI_API_KEY",
    url_variable="OPENAI_BASE_URL",
    max_tokens_name="max_completion_tokens",
    developer_role=None,
)

ReasoningSummary = Literal["auto", "concise", "detailed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """The options of all requests of one adapter."""

    preset: Preset = OPENAI
    """The service, with the overrides of the adapter's options."""
    parallel_tool_calls: bool | None = None
    """The default for requests with actions; None: the field is omitted."""
    reasoning_summary: ReasoningSummary | None = None
    """The length of reasoning summaries; None: no summaries."""
    signer: str = ""
    """The provider whose signed reasoning is sent back; empty: none."""


_API = "OpenAI's chat completions API"
_AUDIO = {
    "audio/mp3": "mp3",
    "audio/mpeg": "mp3",
    "audio/vnd.wave": "wav",
    "audio/wav": "wav",
    "audio/wave": "wav",
    "audio/x-wav": "wav",
}


def build_content(
    message: TextMessage | ImageMessage, capabilities: CapabilityFilter, *, new: bool
) -> str | list[JsonObject]:
    """Return the content of a message. `new` is True for the user's latest message.

    Raises `Misuse` for a new attachment that the API does not take.
    """
    return encode_content(message, _encode, "text", capabilities, new=new)


def encode_content(
    message: TextMessage | ImageMessage,
    encode_media: MediaEncoder,
    text: str,
    capabilities: CapabilityFilter,
    *,
    new: bool,
) -> str | list[JsonObject]:
    """Return the content for one of OpenAI's APIs; `text` is its name for text parts."""

    def encode(media: Media) -> JsonObject | str:
        return _find_reason(media, capabilities) or encode_media(media)

    if isinstance(message, TextMessage) and not has_media(message):
        return message.content
    return add_types(build_parts(message, encode, new=new), text)


def _find_reason(media: Media, capabilities: CapabilityFilter) -> str | None:
    """Return the reason why the service does not support an attachment, or `None`."""
    match media.kind:
        case "image":
            return capabilities.reason("image_urls" if media.url else "images")
        case "document":
            return None if decode_text(media) is not None else capabilities.reason("documents")
        case "audio" | "video":
            return None


def _encode(media: Media) -> JsonObject | str:
    """Return the content part, or the reason for a refusal."""
    match media.kind:
        case "image":
            return _encode_image(media)
        case "audio":
            return _encode_audio(media)
        case "document":
            return _encode_document(media)
        case "video":
            return f"{_API} takes no video"


def _encode_image(media: Media) -> JsonObject | str:
    if media.id:
        return {"type": "file", "file": {"file_id": media.id}}
    url = media.url or build_data_url(media)
    return {"type": "image_url", "image_url": {"url": url}}


def _encode_audio(media: Media) -> JsonObject | str:
    if not media.data:
        return f"{_API} takes audio only with its content, not by an address or an id"
    format = _AUDIO.get(media.mime_type or "audio/wav")
    if format is None:
        return f"{_API} takes audio as wav or mp3, not as {media.mime_type}"
    return {"type": "input_audio", "input_audio": {"data": media.data, "format": format}}


def _encode_document(media: Media) -> JsonObject | str:
    if media.id:
        return {"type": "file", "file": {"file_id": media.id}}
    if media.url:
        return f"{_API} takes documents with their content or by an id, not by an address"
    if part := build_text(media):
        return part
    file = {"filename": media.filename or "document.pdf", "file_data": build_data_url(media)}
    return {"type": "file", "file": file}


_LONGEST_ID = 40
_ACKNOWLEDGEMENT = "OK."
_GO_ON: JsonObject = {"role": "user", "content": GO_ON}


def build_body(
    request: ChatRequest,
    model: str,
    options: RequestOptions,
    capabilities: CapabilityFilter,
    context_tokens: int,
) -> JsonObject:
    """Return the body of the request, with its keys in the order of the Node runtime."""
    parameters = select_parameters(request, model, options, capabilities)
    preset = options.preset
    silent = preset.takes_no_choice and parameters.tool_choice == "none"
    tools = [] if silent else build_tools(request.actions)
    items = fit_history(request, tools, context_tokens, options.signer)
    body: JsonObject = {
        "model": model,
        "stream": True,
        "messages": _encode_messages(items, model, options, capabilities),
    }
    if preset.asks_for_usage:
        body["stream_options"] = {"include_usage": True}
    if tools:
        body["tools"] = tools
    if has_values(parameters):
        body |= _encode_parameters(parameters, preset, has_tools=bool(tools))
    return body


def _encode_parameters(parameters: Parameters, preset: Preset, *, has_tools: bool) -> JsonObject:
    """Return the fields of the parameters that are set."""
    may_choose = has_tools and not preset.takes_no_choice
    fields: JsonObject = {
        preset.max_tokens_name: parameters.max_tokens,
        "stop": list(parameters.stop or ()) or None,
        "tool_choice": build_tool_choice(parameters, preset.required) if may_choose else None,
        "parallel_tool_calls": parameters.parallel_tool_calls if has_tools else None,
        "temperature": parameters.temperature,
        "top_p": parameters.top_p,
        preset.seed_name: parameters.seed,
        "frequency_penalty": parameters.frequency_penalty,
        "presence_penalty": parameters.presence_penalty,
        "reasoning_effort": parameters.reasoning_effort,
        "response_format": build_response_format(parameters),
    }
    return {name: value for name, value in fields.items() if value is not None}


def select_parameters(
    request: ChatRequest, model: str, options: RequestOptions, capabilities: CapabilityFilter
) -> Parameters:
    """Return the parameters that this service and this model support."""
    parameters, default = request.parameters, options.parallel_tool_calls
    if default is not None and parameters.parallel_tool_calls is None and request.actions:
        parameters = copy_with(parameters, parallel_tool_calls=default)
    if not has_values(parameters):
        return parameters
    return capabilities.apply(parameters, find_profile(model).unsupported)


def build_tool_choice(
    parameters: Parameters, required: str = "required"
) -> str | JsonObject | None:
    """Return the tool choice; `required` is the service's name for that value.

    Raises `Misuse` for a function without a name.
    """
    match parameters.tool_choice:
        case "required":
            return required
        case "function":
            return {"type": "function", "function": {"name": required_tool(parameters)}}
        case choice:
            return choice


def build_response_format(parameters: Parameters) -> JsonObject | None:
    """Return the response format; it is `strict` if OpenAI can enforce the whole schema."""
    schema = parameters.response_schema
    if schema is None:
        return None
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", parameters.response_name or "answer")[:64]
    named: JsonObject = {"name": name or "answer", "schema": schema}
    strict = {"strict": True} if _is_strict(schema) else {}
    return {"type": "json_schema", "json_schema": {**named, **strict}}


def _encode_messages(
    items: Sequence[HistoryItem],
    model: str,
    options: RequestOptions,
    capabilities: CapabilityFilter,
) -> list[JsonObject]:
    """Return the messages, each call as a message right before its result, as in Node.

    Every provider accepts that order, and a history cut at any message remains valid.
    """
    messages: list[JsonObject] = []
    thought = ""
    for at, item in enumerate(items):
        match item:
            case TextMessage() | ImageMessage():
                if isinstance(item, TextMessage) and not item.parts:
                    content = item.content
                else:
                    is_new = at >= find_last_turn(items)
                    content = build_content(item, capabilities, new=is_new)
                role = choose_role(item, options.preset, model)
                messages.append({"role": role, "content": content})
            case Thought():
                thought = item.content
                continue
            case ToolExchange():
                pair = _encode_exchange(item, options.preset.call_id_length)
                if thought:
                    pair[0]["reasoning_content"] = thought
                messages += pair
                continue  # one thought may come before several calls
            case _:
                assert_never(item)
        thought = ""
    return _in_strict_order(messages) if options.preset.strict_order else messages


def _in_strict_order(messages: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the messages in strict order: instructions first, the user's message last.

    An assistant message follows each result. Instructions after the last message of the model
    become user messages.
    """
    ordered: list[JsonObject] = []
    instructions: list[JsonObject] = []
    closing: list[JsonObject] = []
    for message in messages:
        if message["role"] in ("system", "developer"):
            closing.append(message)
            continue
        instructions += closing
        closing = []
        if message["role"] == "user" and ordered and ordered[-1]["role"] == "tool":
            ordered.append({"role": "assistant", "content": _ACKNOWLEDGEMENT})
        ordered.append(message)
    if ordered and ordered[-1]["role"] == "assistant":
        last = [{**message, "role": "user"} for message in closing]
        return [*instructions, *ordered, *(last or [_GO_ON])]
    return [*instructions, *closing, *(ordered or [_GO_ON])]


def _encode_exchange(exchange: ToolExchange, id_length: int | None) -> list[JsonObject]:
    call, id = exchange.call, encode_call_id(exchange, id_length)
    function = {"name": call.name, "arguments": call.arguments}
    tool_call = {"id": id, "type": "function", "function": function}
    return [
        {"role": "assistant", "tool_calls": [tool_call], "content": None},
        {"role": "tool", "content": format_result(exchange.result), "tool_call_id": id},
    ]


def encode_call_id(exchange: ToolExchange, length: int | None = None) -> str:
    """Return a call id that the service accepts: that of another provider may be hashed."""
    id = exchange.call.id
    fits = length is None or (len(id) == length and id.isascii() and id.isalnum())
    if fits and len(id) <= _LONGEST_ID:
        return id
    return hashlib.sha256(id.encode(errors="replace")).hexdigest()[: length or _LONGEST_ID]


def choose_role(message: TextMessage | ImageMessage, preset: Preset, model: str) -> str:
    """Return OpenAI's role of a message: `user` for images, which no other role may have."""
    if isinstance(message, ImageMessage):
        return "user"
    if message.role in ("system", "developer"):
        return "developer" if preset.uses_developer_role(model) else "system"
    return message.role


def _is_strict(schema: Any) -> bool:
    """Return whether every object of a schema is closed and requires all its properties."""
    if isinstance(schema, Mapping):
        fields = cast("Mapping[str, Any]", schema)
        properties = fields.get("properties")
        if fields.get("type") == "object" or isinstance(properties, Mapping):
            names = set(cast("Mapping[str, Any]", properties or {}))
            if fields.get("additionalProperties") is not False:
                return False
            if names != set(fields.get("required") or ()):
                return False
        return all(map(_is_strict, fields.values()))
    if isinstance(schema, list | tuple):
        return all(map(_is_strict, cast("Sequence[Any]", schema)))
    return True
