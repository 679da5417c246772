"""Translates a chat request into LangChain's messages, tools and chat model fields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, cast

from copilot_runtime.adapters.added_fields import ANSWER, read_fields
from copilot_runtime.adapters.attachments import (
    USUAL_TYPES,
    Media,
    add_types,
    build_parts,
    build_result_parts,
    separate_files,
)
from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.history import (
    HistoryItem,
    Thought,
    ToolExchange,
    find_last_turn,
    fit_history,
    format_result,
)
from copilot_runtime.adapters.tools import build_tools, required_tool
from copilot_runtime.adapters.turns import group_calls
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.messages import ImageMessage, Message, TextMessage
from copilot_runtime.api.run_input import Parameters
from copilot_runtime.base.jsontext import loads
from copilot_runtime.base.jsonvalue import JsonObject, as_object

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage, BaseMessage

PROVIDER = "langchain"

_NO_CHOICE = "This chat model does not support a tool choice."

FIELDS: Mapping[str, Sequence[str]] = {
    "model": ("model_name", "model", "model_id"),
    "temperature": ("temperature",),
    "top_p": ("top_p",),
    "max_tokens": ("max_tokens", "max_output_tokens", "num_predict", "max_new_tokens"),
    "seed": ("seed",),
    "frequency_penalty": ("frequency_penalty",),
    "presence_penalty": ("presence_penalty",),
    "reasoning_effort": ("reasoning_effort",),
}
"""Parameter → candidate names of its field, of which the first existing one is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LangChainRequest:
    """The argument of a function that is the model, or the `prompt` of a chain.

    `tools` are in OpenAI's format, which `bind_tools` takes.
    """

    messages: "Sequence[BaseMessage]"
    tools: Sequence[JsonObject]
    parameters: Parameters
    thread_id: str
    run_id: str


def build_request(
    request: ChatRequest,
    parameters: Parameters,
    context_tokens: int,
    capabilities: CapabilityFilter,
    origin: str = "",
) -> LangChainRequest:
    """Return the request in LangChain's form, trimmed to `context_tokens`.

    Reasoning is that of the chat model of `origin`.
    """
    tools = build_tools(request.actions)
    items = fit_history(request, tools, context_tokens, origin, capabilities)
    return LangChainRequest(
        messages=build_messages(items, request.messages, origin),
        tools=tools,
        parameters=parameters,
        thread_id=request.thread_id,
        run_id=request.run_id,
    )


def build_messages(
    items: Sequence[HistoryItem], messages: Sequence[Message], origin: str = ""
) -> "list[BaseMessage]":
    """Convert a prepared conversation to LangChain's messages; `messages` are the original ones."""
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    output: list[BaseMessage] = []
    results: list[BaseMessage] = []  # of the calls in the last message
    images: list[JsonObject] = []  # in these results, which are texts for many chat models
    thoughts: list[JsonObject] = []
    answers = group_calls(messages)
    answer = ""
    turn = find_last_turn(items)
    for at, item in enumerate(items):
        if isinstance(item, Thought):
            thoughts.append(_thought(item))
            continue
        if results and not (isinstance(item, ToolExchange) and answers[item.call.id] == answer):
            output += results + _show_images(images)
            results, images = [], []
        match item:
            case TextMessage(role="user") | ImageMessage():
                output.append(HumanMessage(content=cast("Any", _content(item, new=at >= turn))))
            case TextMessage(role="system" | "developer"):
                output.append(SystemMessage(content=item.content))
            case TextMessage():
                content = [*thoughts, {"type": "text", "text": item.content}]
                speaker = AIMessage(content=cast("Any", content if thoughts else item.content))
                output.append(_add_kwargs(speaker, read_fields(item, origin)))
            case ToolExchange(call=call, result=result):
                speaker = output[-1] if output else None
                if not isinstance(speaker, AIMessage) or thoughts:
                    speaker = AIMessage(content=cast("Any", thoughts or ""))
                    output.append(speaker)
                answer = answers[call.id]
                _add_kwargs(speaker, item.fields)
                speaker.tool_calls.append(
                    {
                        "type": "tool_call",
                        "id": item.service_id or call.id,
                        "name": call.name,
                        "args": loads(call.arguments.encode()),
                    }
                )
                parts = build_result_parts(result, _build_media)
                text, files = separate_files(parts)
                images += files
                results.append(
                    ToolMessage(
                        content=text if parts else format_result(result),
                        tool_call_id=item.service_id or call.id,
                        name=call.name,
                        status="error" if result.error else "success",
                    )
                )
        thoughts = []
    return [*output, *results, *_show_images(images)]


def _show_images(images: Sequence[JsonObject]) -> "list[BaseMessage]":
    """Return the message of the user with the images in results, if there are any."""
    from langchain_core.messages import HumanMessage

    words = {"type": "text", "text": "[The results have:]"}
    return [HumanMessage(content=cast("Any", [words, *images]))] if images else []


def _add_kwargs(message: "AIMessage", fields: Mapping[str, Any] | None) -> "AIMessage":
    """Add the `additional_kwargs` in which the chat model keeps fields of its provider."""
    message.additional_kwargs |= as_object((fields or {}).get(ANSWER))
    return message


def set_fields(model: Any, parameters: Parameters, capabilities: CapabilityFilter) -> Any:
    """Return a copy of the chat model with the parameters in its fields."""
    fields = cast("Mapping[str, Any]", getattr(type(model), "model_fields", {}))
    changed: JsonObject = {}
    for parameter, names in FIELDS.items():
        value = getattr(parameters, parameter)
        if value is None:
            continue
        if field := next((name for name in names if name in fields), None):
            changed[field] = value
        else:
            capabilities.omit(parameter, f"{type(model).__name__} has no such field.")
    return model.model_copy(update=changed) if changed else model


def bind_actions(model: Any, question: LangChainRequest, capabilities: CapabilityFilter) -> Any:
    """Return the chat model bound to its tools and the tool choice."""
    parameters = question.parameters
    if not question.tools or parameters.tool_choice == "none":
        return model
    takes = signature(model.bind_tools).parameters
    options: JsonObject = {}
    if choice := build_tool_choice(parameters):
        if "tool_choice" in takes:
            options["tool_choice"] = choice
        else:
            capabilities.omit(f"tool_choice_{parameters.tool_choice}", _NO_CHOICE)
    if parameters.parallel_tool_calls is not None:
        if "parallel_tool_calls" in takes:
            options["parallel_tool_calls"] = parameters.parallel_tool_calls
        else:
            capabilities.omit("parallel_tool_calls", "This chat model has no setting for it.")
    try:
        return model.bind_tools(question.tools, **options)
    except NotImplementedError:
        capabilities.omit("calls", "This chat model takes no tools.")
        return model


def build_tool_choice(parameters: Parameters) -> str | None:
    """Return the tool choice for `bind_tools`. Raises `Misuse` if the function has no name."""
    match parameters.tool_choice:
        case "required":
            return "any"
        case "function":
            return required_tool(parameters)
        case choice:
            return choice


def _content(message: TextMessage | ImageMessage, *, new: bool) -> str | list[JsonObject]:
    parts = build_parts(message, _build_media, new=new)
    if all("type" not in part for part in parts):
        return message.content if isinstance(message, TextMessage) else ""
    return add_types(parts, "text")


def _build_media(media: Media) -> JsonObject | str:
    """Return a standard content block, which each chat model translates for its provider."""
    kind = "file" if media.kind == "document" else media.kind
    block: JsonObject = {"type": kind}
    if media.id:
        block["file_id"] = media.id
    elif media.url:
        block["url"] = media.url
    else:
        block |= {"base64": media.data, "mime_type": media.mime_type or USUAL_TYPES[media.kind]}
    if media.filename:
        block["extras"] = {"filename": media.filename}
    return block


def _thought(thought: Thought) -> JsonObject:
    """Return the reasoning block as the model sent it (see `stream`)."""
    return {**thought.own_fields, thought.get_text("type") or "reasoning": thought.content}
