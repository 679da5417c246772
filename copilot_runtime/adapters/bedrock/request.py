"""Builds the request body of Bedrock's `ConverseStream` within the capabilities of its model.

https://docs.aws.amazon.com/bedrock/latest/userguide/conversation-inference-supported-models-features.html
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import sha256
from typing import Any, Literal

from copilot_runtime.adapters.anthropic import options as claude
from copilot_runtime.adapters.anthropic.request import close_objects
from copilot_runtime.adapters.attachments import (
    USUAL_TYPES,
    Media,
    build_parts,
    build_result_parts,
    build_text,
    merge_extra,
    text_parts,
)
from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.history import Thought, ToolExchange, fit_history, format_result
from copilot_runtime.adapters.streaming import encode_body
from copilot_runtime.adapters.tools import required_tool, select_tools
from copilot_runtime.adapters.turns import build_turns
from copilot_runtime.api.action import Action
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.messages import ImageMessage, ResultMessage, TextMessage
from copilot_runtime.api.run_input import Parameters
from copilot_runtime.base.jsontext import loads
from copilot_runtime.base.jsonvalue import JsonObject, drop_none

Effort = Literal["gpt-oss", "nova", "general", "none"]


@dataclass(frozen=True, slots=True)
class Traits:
    """The capabilities of one model. `name` is the vendor's own, `effort` the form of the effort.

    A Claude has reasoning options of its own, see `claude`.
    """

    vendor: str
    name: str
    effort: Effort = "none"

    @property
    def claude(self) -> claude.Traits | None:
        """The capabilities of a Claude; `None` for other models."""
        return claude.find_traits(self.name) if self.vendor == "anthropic" else None

    @property
    def rich_results(self) -> bool:
        """Whether it accepts images and failures in tool results."""
        return self.vendor in ("anthropic", "amazon")


_PLACE = re.compile(r"^(global|us-gov|us|ca|sa|eu|uk|me|il|af|ap|apac|au|in|jp|kr)\.")
"""The geography of an inference profile: the prefix of its id."""


@lru_cache(maxsize=256)  # a client may name a model in each request
def find_traits(model: str) -> Traits:
    """Return the capabilities of a model by its id, that of an inference profile, or an ARN.

    The id of an application inference profile does not name a model: it counts as unknown.
    """
    id = model.rpartition("/")[2].lower()
    vendor, _, name = _PLACE.sub("", id, count=1).partition(".")
    if not name:
        return Traits("", model, "general")
    if vendor == "openai" and name.startswith("gpt-oss"):
        return Traits(vendor, name, "gpt-oss")
    if vendor == "amazon" and name.startswith("nova-2"):
        return Traits(vendor, name, "nova")
    return Traits(vendor, name)


_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")


def build_body(
    request: ChatRequest,
    model: str,
    capabilities: CapabilityFilter,
    *,
    context_tokens: int,
    cache: bool = False,
    extra: Mapping[str, Any] | None = None,
    origin: str = "",
) -> JsonObject:
    """Return the body of the request, merged with `extra` (see `merge_extra`).

    With `cache`, it has cache points after tools, instructions and conversation. Reasoning is that
    of the service of `origin`.
    """
    traits = find_traits(model)
    parameters = filter_parameters(request.parameters, traits, capabilities)
    tools = _tools(request.actions) if parameters.tool_choice != "none" else []
    sees = bool(tools) and traits.rich_results  # images in results
    items = fit_history(request, tools, context_tokens, origin, capabilities, shows_results=sees)
    turns = build_turns(
        request.messages,
        items,
        encode_message=partial(build_blocks, encode_media=MediaBuilder()),
        encode_exchange=partial(_encode_exchange, traits=traits, as_text=not tools),
        encode_thought=partial(_encode_thought, traits=traits),
    )
    forced = bool(tools) and parameters.tool_choice in ("required", "any", "function")
    thinking = build_thinking(
        parameters,
        traits,
        capabilities,
        forced=forced,
        resumed=turns.resumes_without_thought(
            lambda block: "toolResult" in block, lambda block: "reasoningContent" in block
        ),
    )
    if traits.claude:
        parameters = claude.filter_sampling(parameters, capabilities, thinks=thinking.on)
    mark: list[JsonObject] = [{"cachePoint": {"type": "default"}}] if cache else []
    messages: list[JsonObject] = [
        {"role": "user" if turn.speaker == "user" else "assistant", "content": turn.blocks}
        for turn in turns.turns
    ]
    messages[-1]["content"] += mark
    config = {"tools": tools + mark, "toolChoice": _choice(parameters)} if tools else None
    body = drop_none(
        {
            "messages": messages,
            "system": turns.instructions + mark if turns.instructions else None,
            "toolConfig": drop_none(config) if config else None,
            "inferenceConfig": _limits(parameters, thinking.max_tokens) or None,
            "outputConfig": _output(parameters, thinking.effort, traits) or None,
            "additionalModelRequestFields": thinking.fields or None,
        }
    )
    return merge_extra(body, extra or {})


def _encode_exchange(
    exchange: ToolExchange, *, first: bool, traits: Traits, as_text: bool
) -> tuple[JsonObject, JsonObject]:
    """`as_text` writes calls as texts: Bedrock refuses them in a request without tools."""
    del first
    call, result = exchange.call, exchange.result
    if as_text:
        outcome = result.result or result.error or "nothing"
        return (
            {"text": f"[Called {call.name} with {call.arguments}]"},
            {"text": f"[{call.name} returned: {outcome}]"},
        )
    id = exchange.service_id or _encode_id(call.id)
    use = {"toolUseId": id, "name": call.name, "input": loads(call.arguments.encode())}
    return {"toolUse": use}, {"toolResult": {"toolUseId": id, **build_result(result, traits)}}


def _encode_thought(thought: Thought, traits: Traits) -> JsonObject | None:
    if traits.claude and traits.claude.bound:  # context and tools change
        return None
    if content := thought.get_text("redactedContent"):
        return {"reasoningContent": {"redactedContent": content}}
    return {"reasoningContent": {"reasoningText": {**thought.own_fields, "text": thought.content}}}


def _tools(actions: Sequence[Action]) -> list[JsonObject]:
    tools: list[JsonObject] = []
    for tool in select_tools(actions):
        schema = {**tool["parameters"], "type": "object"}
        described = {"name": tool["name"], "description": tool["description"] or None}
        tools.append({"toolSpec": drop_none({**described, "inputSchema": {"json": schema}})})
    return tools


def _choice(parameters: Parameters) -> JsonObject | None:
    match parameters.tool_choice:
        case None:
            return None
        case "auto":
            return {"auto": {}}
        case "function":
            return {"tool": {"name": required_tool(parameters)}}
        case _:
            return {"any": {}}


def _limits(parameters: Parameters, max_tokens: int | None) -> JsonObject:
    return drop_none(
        {
            "maxTokens": max_tokens,
            "temperature": parameters.temperature,
            "topP": parameters.top_p,
            "stopSequences": [word for word in parameters.stop or () if word] or None,
        }
    )


def _output(parameters: Parameters, effort: str | None, traits: Traits) -> JsonObject:
    output: JsonObject = {"effort": effort} if effort else {}
    if parameters.response_schema is not None:
        schema = parameters.response_schema
        written = encode_body(close_objects(schema) if traits.claude else schema).decode()
        named = {"name": parameters.response_name} if parameters.response_name else {}
        structure = {"jsonSchema": {"schema": written, **named}}
        output["textFormat"] = {"type": "json_schema", "structure": structure}
    return output


def _encode_id(call_id: str) -> str:
    """Return a call id that Bedrock accepts: that of another provider may be hashed."""
    return call_id if _ID.fullmatch(call_id) else sha256(call_id.encode()).hexdigest()


_USUAL_MAX_TOKENS = 32_000


def filter_parameters(
    parameters: Parameters, traits: Traits, capabilities: CapabilityFilter
) -> Parameters:
    """Return the parameters that the API and the model support."""
    if traits.claude:
        return claude.filter_parameters(parameters, traits.claude, capabilities)
    why = "Bedrock has no setting for this model's thoughts."
    reasons = {"reasoning_effort": why} if traits.effort == "none" else {}
    return capabilities.apply(parameters, reasons)


@dataclass(frozen=True, slots=True)
class Thinking:
    """The reasoning options: Converse's `effort`, and model-specific fields.

    `max_tokens` is the maximum length of the answer, reasoning included.
    """

    max_tokens: int | None
    effort: str | None = None
    fields: JsonObject = field(default_factory=dict[str, Any])
    on: bool = False


def build_thinking(
    parameters: Parameters,
    traits: Traits,
    capabilities: CapabilityFilter,
    *,
    forced: bool,
    resumed: bool,
) -> Thinking:
    """Return the reasoning options.

    `forced`: the model must call a tool. `resumed`: the request continues after a call whose
    reasoning is not available.
    """
    most, effort = parameters.max_tokens, parameters.reasoning_effort
    if effort is None:
        return Thinking(most)
    if traits.claude:
        limit = most or min(traits.claude.max_tokens, _USUAL_MAX_TOKENS)
        thoughts = claude.build_thinking(
            None,
            parameters,
            traits.claude,
            capabilities,
            max_tokens=limit,
            forced=forced,
            resumed=resumed,
            has_thoughts=False,
        )
        fields = {"thinking": thoughts.thinking} if thoughts.thinking else {}
        return Thinking(limit if thoughts.on else most, thoughts.effort, fields, thoughts.on)
    level = "low" if effort == "minimal" else effort
    match traits.effort:
        case "gpt-oss":
            return Thinking(most, fields={"reasoning_effort": level})
        case "nova":
            config = {"type": "enabled", "maxReasoningEffort": level}
            return Thinking(most, fields={"reasoningConfig": config})
        case _:
            return Thinking(most, level)


_FORMATS = {
    "image": ("gif", "jpeg", "png", "webp"),
    "document": ("csv", "doc", "docx", "html", "md", "pdf", "txt", "xls", "xlsx"),
    "video": ("flv", "mkv", "mov", "mp4", "mpeg", "three_gp", "webm", "wmv"),
    "audio": ("aac", "flac", "m4a", "mp3", "mp4", "ogg", "opus", "wav", "webm"),
}
_OFFICE = "application/vnd.openxmlformats-officedocument"
_OTHER_FORMATS = {
    "application/msword": "doc",
    "application/vnd.ms-excel": "xls",
    "audio/mpeg": "mp3",
    "audio/wave": "wav",
    "text/markdown": "md",
    "text/plain": "txt",
    "video/3gpp": "three_gp",
    "video/quicktime": "mov",
    "video/x-matroska": "mkv",
    "video/x-ms-wmv": "wmv",
    f"{_OFFICE}.spreadsheetml.sheet": "xlsx",
    f"{_OFFICE}.wordprocessingml.document": "docx",
}
"""MIME type → format, where the format is not the second half of the type."""

_NO_NAME = re.compile(r"[^a-zA-Z0-9\-()\[\]]+")
_LONGEST_NAME = 190


class MediaBuilder:
    """Builds the media blocks of one request, in which documents need unique names."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def __call__(self, media: Media) -> JsonObject | str:
        """Return the block, or the reason for a refusal."""
        if media.id or (media.url and not media.url.startswith("s3://")):
            return "Bedrock takes files with their content or from s3://, not by other addresses"
        if part := build_text(media):
            return part
        mime_type = media.mime_type or USUAL_TYPES[media.kind]
        format = _find_format(mime_type)
        if format not in _FORMATS[media.kind]:
            return f"Bedrock takes no {media.kind} as {mime_type}"
        source = {"s3Location": {"uri": media.url}} if media.url else {"bytes": media.data}
        block: JsonObject = {"format": format, "source": source}
        if media.kind == "document":
            block["name"] = self._name(media.filename)
        return {media.kind: block}

    def _name(self, filename: str) -> str:
        stem = filename.rpartition(".")[0] or filename
        base = _NO_NAME.sub(" ", stem).strip()[:_LONGEST_NAME] or "document"
        name, number = base, 1
        while name in self._names:
            number += 1
            name = f"{base} {number}"
        self._names.add(name)
        return name


def build_blocks(
    message: TextMessage | ImageMessage, encode_media: MediaBuilder, *, new: bool
) -> list[JsonObject]:
    """Return the blocks of a message, with a text beside documents, which Bedrock requires."""
    blocks = build_parts(message, encode_media, new=new)
    if any("document" in block for block in blocks) and not any(
        "text" in block for block in blocks
    ):
        return [*blocks, {"text": "See the attached document."}]
    return blocks


def build_result(result: ResultMessage, traits: Traits) -> JsonObject:
    """Return a tool result without its id.

    Bedrock refuses empty texts, and images in failed results.
    """
    text = format_result(result)
    parts = build_result_parts(result, MediaBuilder())
    if any("text" not in part for part in parts):
        return {"content": parts}
    content = parts or text_parts(text) or [{"text": "(empty)"}]
    failed = {"status": "error"} if result.error and traits.rich_results else {}
    return {"content": content, **failed}


def _find_format(mime_type: str) -> str:
    return _OTHER_FORMATS.get(mime_type) or mime_type.partition("/")[2].removeprefix("x-")
