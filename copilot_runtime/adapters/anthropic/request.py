"""Builds the request body of Anthropic's Messages API from a chat request.

https://platform.claude.com/docs/en/api/messages/create. `options` omits the parameters that a model
refuses with 400; `turns` arranges conversations as the API requires: the calls of one answer in one
turn, and all their results at the start of the next one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from copilot_runtime.adapters.anthropic.content import (
    build_blocks,
    build_exchange,
    build_thought,
    is_file,
    is_result,
    is_thought,
)
from copilot_runtime.adapters.anthropic.models import Traits, find_traits
from copilot_runtime.adapters.anthropic.options import (
    ThinkingOptions,
    build_thinking,
    build_tool_choice,
    filter_parameters,
    filter_sampling,
)
from copilot_runtime.adapters.anthropic.schema import close_objects
from copilot_runtime.adapters.attachments import add_types
from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.history import ToolExchange, fit_history
from copilot_runtime.adapters.tools import select_tools
from copilot_runtime.adapters.turns import Turn, build_turns
from copilot_runtime.api.action import Action
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.run_input import Parameters
from copilot_runtime.base.jsonvalue import JsonObject, drop_none

PROVIDER = "anthropic"

NEWEST = "2026-10-21"
"""The version of the API without `temperature`, `top_p` and `top_k`."""

_WITH_SAMPLING = "2023-06-01"
_BINDING = "thinking-binding-controls-2026-08-01"
_FILES = "files-api-2025-04-14"
"""The beta that accepts files by their ids."""

_USUAL_MAX_TOKENS = 32_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of an adapter for all its requests.

    `context_tokens` is the window without the answer's tokens. `thinking` enables or disables
    reasoning (None: the model's default), or is the budget in tokens for older models. `cache`
    enables prompt caching, or is its duration. With `eager`, arguments are streamed. Without
    `version`, the newest API version that accepts the parameters is used.
    """

    context_tokens: int = 200_000
    max_tokens: int | None = None
    thinking: bool | int | None = None
    cache: bool | Literal["5m", "1h"] = True
    eager: bool = True
    version: str | None = None
    betas: Sequence[str] = ()


def build_request(
    request: ChatRequest, model: str, settings: Settings, capabilities: CapabilityFilter
) -> tuple[JsonObject, dict[str, str]]:
    """Return the body, and the headers for its API version and betas.

    Parameters that the model does not support are recorded in `capabilities`.
    """
    traits = find_traits(model)
    parameters = filter_parameters(request.parameters, traits, capabilities)
    tools = _tools(request.actions, eager=settings.eager and traits.eager)
    max_tokens = _max_tokens(parameters, settings, traits)
    room = settings.context_tokens
    if parameters.max_tokens is None:
        room -= min(max_tokens, settings.context_tokens // 4)
    items = fit_history(request, tools, room, PROVIDER)
    turns = build_turns(
        request.messages,
        items,
        encode_message=build_blocks,
        encode_exchange=build_exchange,
        encode_thought=build_thought,
    )
    blocks = [block for turn in turns.turns for block in turn.blocks]
    choice = build_tool_choice(parameters, traits, capabilities) if tools else None
    names = dict.fromkeys(item.call.name for item in items if isinstance(item, ToolExchange))
    if names and not tools:  # calls of tools that are not listed are refused
        tools = [{"name": name, "input_schema": {"type": "object"}} for name in names]
        choice = {"type": "none"}
    thoughts = build_thinking(
        settings.thinking,
        parameters,
        traits,
        capabilities,
        max_tokens=max_tokens,
        forced=choice is not None and choice["type"] in ("any", "tool"),
        resumed=turns.resumes_without_thought(is_result, is_thought),
        has_thoughts=any(map(is_thought, blocks)),
    )
    if traits.bound and not thoughts.on:  # then nothing keeps them from being an error
        for turn in turns.turns:
            turn.blocks[:] = [block for block in turn.blocks if not is_thought(block)]
    if traits.versioned:
        parameters = filter_sampling(parameters, capabilities, thinks=thoughts.on)
    body = drop_none(
        {
            "model": model,
            "max_tokens": max_tokens,
            "stream": True,
            "system": add_types(turns.instructions, "text") or None,
            "messages": [
                {
                    "role": "user" if turn.speaker == "user" else "assistant",
                    "content": add_types(turn.blocks, "text"),
                }
                for turn in turns.turns
            ],
            "tools": tools or None,
            "tool_choice": choice,
            "stop_sequences": [word for word in parameters.stop or () if word.strip()] or None,
            "thinking": thoughts.thinking,
            "output_config": _output(parameters, thoughts) or None,
            "temperature": parameters.temperature,
            "top_p": parameters.top_p,
        }
    )
    if settings.cache:
        _mark_for_cache(body, turns.stable, settings.cache)
    betas = [*settings.betas]
    if thoughts.bound:
        betas.append(_BINDING)
    if any(map(is_file, blocks)):
        betas.append(_FILES)
    samples = "temperature" in body or "top_p" in body
    version = settings.version or (_WITH_SAMPLING if samples or not traits.versioned else NEWEST)
    named = {"anthropic-beta": ",".join(dict.fromkeys(betas))} if betas else {}
    return body, {"anthropic-version": version, **named}


def _max_tokens(parameters: Parameters, settings: Settings, traits: Traits) -> int:
    """Return the maximum length of the answer, reasoning included; the API requires a limit."""
    limit = settings.max_tokens if parameters.max_tokens is None else parameters.max_tokens
    if limit is None:
        return min(traits.max_tokens, _USUAL_MAX_TOKENS)
    return min(limit, traits.max_tokens) if traits.versioned else limit


def _tools(actions: Sequence[Action], *, eager: bool) -> list[JsonObject]:
    return [
        drop_none(
            {
                "name": tool["name"],
                "description": tool["description"] or None,
                "input_schema": {**tool["parameters"], "type": "object"},
                "eager_input_streaming": eager or None,
            }
        )
        for tool in select_tools(actions)
    ]


def _output(parameters: Parameters, thoughts: ThinkingOptions) -> JsonObject:
    output: JsonObject = {}
    if thoughts.effort:
        output["effort"] = thoughts.effort
    if parameters.response_schema is not None:
        output["format"] = {
            "type": "json_schema",
            "schema": close_objects(parameters.response_schema),
        }
    return output


def _mark_for_cache(
    body: JsonObject, stable: Turn | None, cache: bool | Literal["5m", "1h"]
) -> None:
    """Add cache breakpoints after the stable parts: tools, instructions, conversation.

    https://platform.claude.com/docs/en/build-with-claude/prompt-caching: the prefix before a
    breakpoint is cached, in this order; a prefix that is too short is not an error.
    """
    mark: JsonObject = {"type": "ephemeral"}
    if isinstance(cache, str):
        mark["ttl"] = cache
    if "tools" in body:
        body["tools"][-1]["cache_control"] = mark
    if "system" in body:
        body["system"][-1]["cache_control"] = mark
    for block in reversed(stable.blocks if stable else []):
        if not is_thought(block):  # these bear no mark
            block["cache_control"] = mark
            break
