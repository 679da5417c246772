"""The presets of services with OpenAI's chat completions API, and the bodies of requests to it."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, assert_never, cast

from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.context_window import find_profile
from copilot_runtime.adapters.history import (
    HistoryItem,
    Thought,
    ToolExchange,
    find_last_turn,
    fit_history,
)
from copilot_runtime.adapters.openai.answers import Answers
from copilot_runtime.adapters.openai.content import build_content, encode_result
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


_LONGEST_ID = 40
_ACKNOWLEDGEMENT = "OK."
_GO_ON: JsonObject = {"role": "user", "content": GO_ON}


def build_body(
    request: ChatRequest,
    model: str,
    options: RequestOptions,
    capabilities: CapabilityFilter,
    context_tokens: int,
    origin: str = "",
) -> JsonObject:
    """Return the body of the request, with its keys in the order of the Node runtime.

    Answers of the service of `origin` have the fields that it added to them.
    """
    parameters = select_parameters(request, model, options, capabilities)
    preset = options.preset
    silent = preset.takes_no_choice and parameters.tool_choice == "none"
    tools = [] if silent else build_tools(request.actions)
    items = fit_history(request, tools, context_tokens, origin, capabilities)
    body: JsonObject = {
        "model": model,
        "stream": True,
        "messages": _encode_messages(items, model, options, capabilities, request, origin),
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
    request: ChatRequest,
    origin: str,
) -> list[JsonObject]:
    """Return the messages, each call as a message right before its result, as in Node.

    Every provider accepts that order, and a history cut at any message remains valid. Only an
    answer to which the service added fields is one message, as `Answers` has it.
    """
    answers = Answers(request.messages, origin)
    for at, item in enumerate(items):
        match item:
            case TextMessage(role="assistant") if not item.parts:
                answers.say(item)
            case TextMessage() | ImageMessage():
                if isinstance(item, TextMessage) and not item.parts:
                    content = item.content
                else:
                    is_new = at >= find_last_turn(items)
                    content = build_content(item, capabilities, new=is_new)
                answers.add({"role": choose_role(item, options.preset, model), "content": content})
            case Thought():
                answers.think(item)
            case ToolExchange():
                answers.call(item, *_encode_exchange(item, options.preset, capabilities))
            case _:
                assert_never(item)
    messages = answers.finish()
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


def _encode_exchange(
    exchange: ToolExchange, preset: Preset, capabilities: CapabilityFilter
) -> tuple[JsonObject, list[JsonObject]]:
    """Return a call, and the messages of its result: one of the user has the images in it."""
    call, id = exchange.call, encode_call_id(exchange, preset.call_id_length)
    function = {"name": call.name, "arguments": call.arguments}
    text, images = encode_result(exchange, capabilities)
    result: JsonObject = {"role": "tool", "content": text, "tool_call_id": id}
    messages = [result, {"role": "user", "content": images}] if images else [result]
    return {"id": id, "type": "function", "function": function}, messages


def encode_call_id(exchange: ToolExchange, length: int | None = None) -> str:
    """Return a call id that the service accepts: that of another service may be hashed."""
    if own := exchange.service_id:
        return own
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
