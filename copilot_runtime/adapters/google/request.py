"""Builds the request body of Gemini's `generateContent` from a chat request.

https://ai.google.dev/api/generate-content
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal

from copilot_runtime.adapters.added_fields import read_fields
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
from copilot_runtime.adapters.history import Thought, ToolExchange, fit_history
from copilot_runtime.adapters.tools import required_tool, select_tools
from copilot_runtime.adapters.turns import build_turns
from copilot_runtime.api.action import Action
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.messages import ImageMessage, ResultMessage, TextMessage
from copilot_runtime.api.run_input import Parameters
from copilot_runtime.base.jsontext import loads
from copilot_runtime.base.jsonvalue import JsonObject, as_count, drop_none, get_text

_FILES = "https://generativelanguage.googleapis.com/v1beta/files/"

SIGNED = "$signed"
"""The number of characters of a text that are in its signed part."""

UNSIGNED = "skip_thought_signature_validator"
"""Google's placeholder for the signature of a call that Gemini did not make, or of a lost one.

https://ai.google.dev/gemini-api/docs/thought-signatures, its questions and answers.
"""


Thinking = Literal["never", "budget", "level"]


@dataclass(frozen=True, slots=True)
class Traits:
    """The capabilities of one model. `signed_calls`: it requires signatures on its calls."""

    thinking: Thinking = "level"
    signed_calls: bool = False


BUDGETS = {"minimal": 1_024, "low": 1_024, "medium": 8_192, "high": 24_576}
"""Effort → reasoning budget in tokens, for models without levels."""

_GENERATION = re.compile(r"gemini-(\d+)(?:\.(\d+))?")


@lru_cache(maxsize=256)  # a client may name a model in each request
def find_traits(model: str) -> Traits:
    """Return the capabilities of a model, by the generation in its name.

    A name without a generation (`gemini-flash-latest`, a tuned model) counts as a new one.
    https://ai.google.dev/gemini-api/docs/thinking
    """
    name = model.rpartition("/")[2].lower()
    if not name.startswith("gemini-"):
        return Traits()
    found = _GENERATION.match(name)
    generation = float(f"{found[1]}.{found[2] or 0}") if found else 3.0
    if generation < 2.5:
        return Traits("never")
    if generation < 3:
        return Traits("budget")
    return Traits("level", signed_calls=True)


def build_body(
    request: ChatRequest,
    model: str,
    capabilities: CapabilityFilter,
    *,
    context_tokens: int,
    include_thoughts: bool = False,
    extra: Mapping[str, Any] | None = None,
    origin: str = "",
) -> JsonObject:
    """Return the body of the request, merged with `extra` (see `merge_extra`).

    Signatures are those of the service of `origin`.
    """
    traits = find_traits(model)
    silent = {"reasoning_effort": "This model does not think."}
    reasons = silent if traits.thinking == "never" else {}
    parameters = capabilities.apply(request.parameters, reasons)
    tools = _declarations(request.actions)
    sees = traits.thinking == "level"  # images in results
    items = fit_history(request, tools, context_tokens, origin, capabilities, shows_results=sees)
    turns = build_turns(
        request.messages,
        items,
        encode_message=partial(_encode_message, origin=origin),
        encode_exchange=partial(_encode_exchange, traits=traits),
        encode_thought=_encode_thought,
        model_images=True,
    )
    choice = _choice(parameters) if tools else None
    instructions = turns.instructions
    body = drop_none(
        {
            "contents": [{"role": turn.speaker, "parts": turn.blocks} for turn in turns.turns],
            "systemInstruction": {"parts": instructions} if instructions else None,
            "tools": [{"functionDeclarations": tools}] if tools else None,
            "toolConfig": {"functionCallingConfig": choice} if choice else None,
            "generationConfig": _settings(parameters, traits, include_thoughts) or None,
        }
    )
    return merge_extra(body, extra or {})


def _encode_message(
    message: TextMessage | ImageMessage, *, new: bool, origin: str
) -> list[JsonObject]:
    if isinstance(message, TextMessage) and message.extra:
        fields = read_fields(message, origin) or {}
        if signature := get_text(fields, "thoughtSignature"):
            return _sign_text(message.content, as_count(fields.get(SIGNED)) or 0, signature)
    return build_parts(message, _build_media, new=new)


def _sign_text(text: str, count: int, signature: str) -> list[JsonObject]:
    """Return the parts of a text whose last part, of `count` characters, is signed.

    Parts with and without a signature are not merged, and the signed one may be empty:
    https://ai.google.dev/gemini-api/docs/thought-signatures
    """
    start = max(len(text) - count, 0)
    signed = {"text": text[start:], "thoughtSignature": signature}
    return [*text_parts(text[:start]), signed]


def _encode_thought(thought: Thought) -> JsonObject:
    return {**thought.own_fields, "text": thought.content, "thought": True}


def _encode_exchange(
    exchange: ToolExchange, *, first: bool, traits: Traits
) -> tuple[JsonObject, JsonObject]:
    call, id = exchange.call, exchange.service_id or exchange.call.id
    arguments = loads(call.arguments.encode())
    part: JsonObject = {"functionCall": {"name": call.name, "args": arguments, "id": id}}
    signature = get_text(exchange.own_fields, "thoughtSignature")
    if signature or (first and traits.signed_calls):
        part["thoughtSignature"] = signature or UNSIGNED
    response = {"name": call.name, **_response(exchange.result), "id": id}
    return part, {"functionResponse": response}


def _build_media(media: Media) -> JsonObject | str:
    """Return the part with the content or the URL of a file, or the reason for a refusal.

    Any URL is passed on: which ones Gemini reads (its own files, `gs://`, YouTube, the web) depends
    on the model and on the service.
    https://ai.google.dev/gemini-api/docs/file-input-methods
    """
    if media.url or media.id:
        file = {"fileUri": media.url or _build_uri(media.id)}
        if media.mime_type:
            file["mimeType"] = media.mime_type
        return {"fileData": file}
    if part := build_text(media):
        return part
    if media.kind == "document" and media.mime_type not in ("", "application/pdf"):
        return f"Gemini takes documents as PDF or as text, not as {media.mime_type}"
    mime_type = media.mime_type or USUAL_TYPES[media.kind]
    return {"inlineData": {"mimeType": mime_type, "data": media.data}}


def _build_uri(id: str) -> str:
    """Return the URL of a file that was uploaded to Google."""
    return id if "://" in id else f"{_FILES}{id.removeprefix('files/')}"


def _response(result: ResultMessage) -> JsonObject:
    """Return a tool result as an object: its own, or one with the members of Gemini's API."""
    if not result.result and result.error:
        return {"response": {"error": result.error}}
    if parts := build_result_parts(result, _build_result_media):
        # https://ai.google.dev/gemini-api/docs/function-calling#multimodal
        words = "\n".join(part["text"] for part in parts if "text" in part)
        files = [part for part in parts if "text" not in part]
        return {"response": {"output": words}, **({"parts": files} if files else {})}
    try:
        value = loads(result.result.encode(errors="replace"))
    except ValueError:
        value = result.result
    return {"response": value if isinstance(value, dict) else {"output": result.result}}


_RESULT_IMAGES = ("image/png", "image/jpeg", "image/webp")


def _build_result_media(media: Media) -> JsonObject | str:
    """Return an image in a result as a part, or the reason for a refusal."""
    mime_type = media.mime_type or USUAL_TYPES[media.kind]
    if not media.data or mime_type not in _RESULT_IMAGES:
        return "Gemini takes images in results as PNG, JPEG and WEBP, with their content"
    return {"inlineData": {"mimeType": mime_type, "data": media.data}}


def _declarations(actions: Sequence[Action]) -> list[JsonObject]:
    """Return the function declarations of the available actions."""
    declarations: list[JsonObject] = []
    for tool in select_tools(actions):
        schema = tool.pop("parameters")
        if schema.get("properties") or schema.keys() - {"type", "properties", "required"}:
            tool["parametersJsonSchema"] = schema
        declarations.append(tool)
    return declarations


def _choice(parameters: Parameters) -> JsonObject | None:
    match parameters.tool_choice:
        case None:
            return None
        case "auto" | "none" as word:
            return {"mode": word.upper()}
        case "function":
            return {"mode": "ANY", "allowedFunctionNames": [required_tool(parameters)]}
        case _:
            return {"mode": "ANY"}


def _settings(parameters: Parameters, traits: Traits, include_thoughts: bool) -> JsonObject:
    schema = parameters.response_schema
    return drop_none(
        {
            "temperature": parameters.temperature,
            "topP": parameters.top_p,
            "maxOutputTokens": parameters.max_tokens,
            "stopSequences": list(parameters.stop) if parameters.stop else None,
            "seed": parameters.seed,
            "frequencyPenalty": parameters.frequency_penalty,
            "presencePenalty": parameters.presence_penalty,
            "thinkingConfig": _thinking(parameters, traits, include_thoughts) or None,
            "responseMimeType": None if schema is None else "application/json",
            "responseJsonSchema": None if schema is None else dict(schema),
        }
    )


def _thinking(parameters: Parameters, traits: Traits, include_thoughts: bool) -> JsonObject:
    thinking: JsonObject = {"includeThoughts": True} if include_thoughts else {}
    if (effort := parameters.reasoning_effort) is not None:
        if traits.thinking == "budget":
            thinking["thinkingBudget"] = BUDGETS[effort]
        else:
            thinking["thinkingLevel"] = effort.upper()
    return thinking
