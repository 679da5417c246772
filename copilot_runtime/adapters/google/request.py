"""A chat request as Gemini's `generateContent` wants it, at Google AI and at Vertex AI.

https://ai.google.dev/api/generate-content
"""

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from copilot_runtime.adapters.anthropic.content import parse_result_blocks
from copilot_runtime.adapters.attachments import (
    build_image_parts,
    build_parts,
    merge_extra,
    text_parts,
)
from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.google.content import build_media
from copilot_runtime.adapters.google.models import BUDGETS, Traits, find_traits
from copilot_runtime.adapters.history import (
    CHARACTERS_PER_TOKEN,
    HistoryItem,
    Thought,
    ToolExchange,
    find_last_turn,
    repair_history,
    truncate_history,
)
from copilot_runtime.adapters.signatures import read_signature
from copilot_runtime.adapters.streaming import encode_body
from copilot_runtime.adapters.tools import build_tools, required_tool
from copilot_runtime.adapters.turns import Turn, Turns
from copilot_runtime.interfaces import Action, ChatRequest, Parameters
from copilot_runtime.jsontext import loads
from copilot_runtime.jsonvalue import JsonObject
from copilot_runtime.messages import ImageMessage, Message, ResultMessage, TextMessage

SIGNER = "google"

UNSIGNED = "skip_thought_signature_validator"
"""Google's own word for a call that Gemini did not make, or whose signature was lost.

https://ai.google.dev/gemini-api/docs/thought-signatures, its questions and answers.
"""


def build_body(
    request: ChatRequest,
    model: str,
    capabilities: CapabilityFilter,
    *,
    context_tokens: int,
    include_thoughts: bool = False,
    extra: Mapping[str, Any] | None = None,
) -> JsonObject:
    """Return the body of the request; `extra` is laid over it (see `merge_extra`)."""
    traits = find_traits(model)
    parameters = capabilities.apply(request.parameters)
    if traits.thinking == "never":
        parameters = capabilities.apply(
            parameters, {"reasoning_effort": "This model does not think."}
        )
    tools = _declarations(request.actions)
    room = context_tokens - len(encode_body(tools)) // CHARACTERS_PER_TOKEN
    items = truncate_history(repair_history(request.messages, SIGNER), room)
    turns = _turns(request.messages, items, traits)
    body: JsonObject = {"contents": [_content(turn) for turn in turns.turns]}
    if turns.instructions:
        body["systemInstruction"] = {"parts": turns.instructions}
    if tools:
        body["tools"] = [{"functionDeclarations": tools}]
        if choice := _choice(parameters):
            body["toolConfig"] = {"functionCallingConfig": choice}
    if settings := _settings(parameters, traits, include_thoughts):
        body["generationConfig"] = settings
    return merge_extra(body, extra or {})


def _turns(messages: Sequence[Message], items: Sequence[HistoryItem], traits: Traits) -> Turns:
    turns = Turns(messages)
    new = find_last_turn(items)
    for at, item in enumerate(items):
        match item:
            case TextMessage(role="system" | "developer"):
                turns.instruct(text_parts(item.content))
            case TextMessage():
                parts = build_parts(item, build_media, new=at >= new)
                turns.say("user" if item.role == "user" else "model", parts)
            case ImageMessage():
                parts = build_image_parts(item, build_media, new=at >= new)
                turns.say("user" if item.role == "user" else "model", parts)
            case Thought():
                part = {"text": item.content, "thought": True, "thoughtSignature": item.signature}
                turns.say("model", [part])
            case ToolExchange():
                _add_call(turns, item, traits)
            case _:
                assert_never(item)
    turns.finish()
    return turns


def _add_call(turns: Turns, exchange: ToolExchange, traits: Traits) -> None:
    call = exchange.call
    arguments = loads(call.arguments.encode())
    part: JsonObject = {"functionCall": {"name": call.name, "args": arguments, "id": call.id}}
    response = {"name": call.name, **_response(exchange.result, traits), "id": call.id}
    first = turns.call(call.id, part, {"functionResponse": response})
    signature = read_signature(call, SIGNER)
    if signature or (first and traits.signed_calls):
        part["thoughtSignature"] = signature or UNSIGNED


def _response(result: ResultMessage, traits: Traits) -> JsonObject:
    """Return what came of a call, as an object: its own, or with the members Gemini knows."""
    if not result.result and result.error:
        return {"response": {"error": result.error}}
    blocks = parse_result_blocks(result.result) if traits.thinking == "level" else result.result
    if not isinstance(blocks, str):
        return _image_response(blocks)
    try:
        value = loads(blocks.encode(errors="replace"))
    except ValueError:
        value = blocks
    return {"response": value if isinstance(value, dict) else {"output": blocks}}


def _image_response(blocks: Sequence[JsonObject]) -> JsonObject:
    """Return a result with images; https://ai.google.dev/gemini-api/docs/function-calling."""
    words = "\n".join(block["text"] for block in blocks if block["type"] == "text")
    sources = [block["source"] for block in blocks if block["type"] == "image"]
    images = [
        {"inlineData": {"mimeType": source["media_type"], "data": source["data"]}}
        for source in sources
    ]
    return {"response": {"output": words}, "parts": images}


def _content(turn: Turn) -> JsonObject:
    return {"role": turn.speaker, "parts": turn.blocks}


def _declarations(actions: Sequence[Action]) -> list[JsonObject]:
    """Return the actions a model may see; one without parameters is declared without."""
    declarations: list[JsonObject] = []
    for tool in build_tools(actions):
        function = tool["function"]
        declaration: JsonObject = {"name": function["name"], "description": function["description"]}
        schema = {name: part for name, part in function["parameters"].items() if name != "$schema"}
        if schema.get("properties") or set(schema) - {"type", "properties", "required"}:
            declaration["parametersJsonSchema"] = schema
        declarations.append(declaration)
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
    settings: JsonObject = {
        "temperature": parameters.temperature,
        "topP": parameters.top_p,
        "maxOutputTokens": parameters.max_tokens,
        "stopSequences": list(parameters.stop) if parameters.stop else None,
        "seed": parameters.seed,
        "frequencyPenalty": parameters.frequency_penalty,
        "presencePenalty": parameters.presence_penalty,
        "thinkingConfig": _thinking(parameters, traits, include_thoughts) or None,
    }
    if parameters.response_schema is not None:
        settings["responseMimeType"] = "application/json"
        settings["responseJsonSchema"] = dict(parameters.response_schema)
    return {name: value for name, value in settings.items() if value is not None}


def _thinking(parameters: Parameters, traits: Traits, include_thoughts: bool) -> JsonObject:
    thinking: JsonObject = {"includeThoughts": True} if include_thoughts else {}
    if (effort := parameters.reasoning_effort) is not None:
        if traits.thinking == "budget":
            thinking["thinkingBudget"] = BUDGETS[effort]
        else:
            thinking["thinkingLevel"] = effort.upper()
    return thinking
