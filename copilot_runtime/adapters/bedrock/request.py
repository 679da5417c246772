"""A chat request as Bedrock's `ConverseStream` takes it.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any

from copilot_runtime.adapters.anthropic import options as claude
from copilot_runtime.adapters.anthropic.content import REDACTED
from copilot_runtime.adapters.anthropic.schema import close_objects
from copilot_runtime.adapters.attachments import merge_extra
from copilot_runtime.adapters.bedrock.content import MediaBuilder, build_blocks, build_result
from copilot_runtime.adapters.bedrock.models import Traits, find_traits
from copilot_runtime.adapters.bedrock.options import build_thinking, filter_parameters
from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.history import Thought, ToolExchange, fit_history
from copilot_runtime.adapters.streaming import encode_body
from copilot_runtime.adapters.tools import required_tool, select_tools
from copilot_runtime.adapters.turns import build_turns
from copilot_runtime.api.action import Action
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.run_input import Parameters
from copilot_runtime.base.jsontext import loads
from copilot_runtime.base.jsonvalue import JsonObject, drop_none

SIGNER = "bedrock"

_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")


def build_body(
    request: ChatRequest,
    model: str,
    capabilities: CapabilityFilter,
    *,
    context_tokens: int,
    cache: bool = False,
    extra: Mapping[str, Any] | None = None,
) -> JsonObject:
    """Return the body of the request; `extra` is laid over it (see `merge_extra`).

    With `cache`, the ends of tools, instructions and conversation are marked to be kept.
    """
    traits = find_traits(model)
    parameters = filter_parameters(request.parameters, traits, capabilities)
    tools = _tools(request.actions) if parameters.tool_choice != "none" else []
    items = fit_history(request, tools, context_tokens, SIGNER)
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
    id = _encode_id(call.id)
    use = {"toolUseId": id, "name": call.name, "input": loads(call.arguments.encode())}
    return {"toolUse": use}, {"toolResult": {"toolUseId": id, **build_result(result, traits)}}


def _encode_thought(thought: Thought, traits: Traits) -> JsonObject | None:
    if traits.claude and traits.claude.bound:  # context and tools change
        return None
    if thought.signature.startswith(REDACTED):
        content = thought.signature.removeprefix(REDACTED)
        return {"reasoningContent": {"redactedContent": content}}
    signed = {"text": thought.content, "signature": thought.signature}
    return {"reasoningContent": {"reasoningText": signed}}


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
    """Return an id that Bedrock takes; other providers write them longer or otherwise."""
    return call_id if _ID.fullmatch(call_id) else sha256(call_id.encode()).hexdigest()
