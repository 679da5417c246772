"""A chat request as Anthropic's Messages API wants it.

https://platform.claude.com/docs/en/api/messages/create. What a model refuses with 400 is left out
by `options`; what the API refuses in conversations is put right by `turns`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from copilot_runtime.adapters.anthropic.content import FILES, is_file
from copilot_runtime.adapters.anthropic.models import Traits, find_traits
from copilot_runtime.adapters.anthropic.options import (
    ThinkingOptions,
    build_thinking,
    build_tool_choice,
    filter_parameters,
)
from copilot_runtime.adapters.anthropic.schema import close_objects
from copilot_runtime.adapters.anthropic.turns import (
    build_anthropic_turns,
    is_result,
    is_thought,
)
from copilot_runtime.adapters.attachments import add_types
from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.history import ToolExchange, fit_history
from copilot_runtime.adapters.tools import build_tools
from copilot_runtime.adapters.turns import Turn, Turns
from copilot_runtime.interfaces import Action, ChatRequest, Parameters
from copilot_runtime.jsonvalue import JsonObject

PROVIDER = "anthropic"

NEWEST = "2026-10-21"
"""The version of the API that has no `temperature`, `top_p` and `top_k`."""

_WITH_SAMPLING = "2023-06-01"
_BINDING = "thinking-binding-controls-2026-08-01"
_USUAL_MAX_TOKENS = 32_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How an adapter asks.

    `context_tokens` is the window, without the tokens of its answer. `thinking` is
    whether to think (None: as the model does by itself), or for older models how many tokens
    long. `cache` is whether the provider keeps what is the same next time, and how long. `eager`
    arguments arrive while they are written. Without `version`, it is the newest one that takes
    what is asked.
    """

    context_tokens: int = 200_000
    max_tokens: int | None = None
    thinking: bool | int | None = None
    cache: bool | Literal["5m", "1h"] = True
    eager: bool = True
    version: str | None = None
    betas: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class MessagesRequest:
    """A request: its body, and the version and betas of the API it is written for."""

    body: JsonObject
    version: str
    betas: Sequence[str] = field(default=())

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers that go with the body."""
        named = {"anthropic-beta": ",".join(self.betas)} if self.betas else {}
        return {"anthropic-version": self.version, **named}


def build_request(
    request: ChatRequest, model: str, settings: Settings, capabilities: CapabilityFilter
) -> MessagesRequest:
    """Return what to send. Wishes that cannot be fulfilled go to `capabilities`."""
    traits = find_traits(model)
    parameters = filter_parameters(request.parameters, traits, capabilities)
    tools = _tools(request.actions, eager=settings.eager and traits.eager)
    max_tokens = _max_tokens(parameters, settings, traits)
    room = settings.context_tokens
    if parameters.max_tokens is None:
        room -= min(max_tokens, settings.context_tokens // 4)
    items = fit_history(request.messages, tools, room, PROVIDER)
    turns = build_anthropic_turns(request.messages, items)
    blocks = [block for turn in turns.turns for block in turn.blocks]
    choice = build_tool_choice(parameters, traits, capabilities) if tools else None
    names = dict.fromkeys(item.call.name for item in items if isinstance(item, ToolExchange))
    if names and not tools:  # calls of tools nobody knows are refused
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
        _drop_thoughts(turns)
    sampling = _sampling(parameters, traits, thoughts, capabilities)
    body: JsonObject = {"model": model, "max_tokens": max_tokens, "stream": True}
    if turns.instructions:
        body["system"] = add_types(turns.instructions, "text")
    body["messages"] = [
        {
            "role": "user" if turn.speaker == "user" else "assistant",
            "content": add_types(turn.blocks, "text"),
        }
        for turn in turns.turns
    ]
    if tools:
        body["tools"] = tools
    if choice:
        body["tool_choice"] = choice
    if stop := [word for word in parameters.stop or () if word.strip()]:
        body["stop_sequences"] = stop
    if thoughts.thinking:
        body["thinking"] = thoughts.thinking
    if output := _output(parameters, thoughts):
        body["output_config"] = output
    body |= sampling
    if settings.cache:
        _mark_for_cache(body, turns.stable, settings.cache)
    betas = [*settings.betas]
    if thoughts.bound:
        betas.append(_BINDING)
    if any(map(is_file, blocks)):
        betas.append(FILES)
    version = settings.version or (_WITH_SAMPLING if sampling or not traits.versioned else NEWEST)
    return MessagesRequest(body, version, tuple(dict.fromkeys(betas)))


def _max_tokens(parameters: Parameters, settings: Settings, traits: Traits) -> int:
    """Return how long the answer may be; the API wants to be told, thoughts included."""
    limit = settings.max_tokens if parameters.max_tokens is None else parameters.max_tokens
    if limit is None:
        return min(traits.max_tokens, _USUAL_MAX_TOKENS)
    return min(limit, traits.max_tokens) if traits.versioned else limit


def _tools(actions: Sequence[Action], *, eager: bool) -> list[JsonObject]:
    flags = {"eager_input_streaming": True} if eager else {}
    tools: list[JsonObject] = []
    for tool in build_tools(actions):
        function = tool["function"]
        described = {"description": function["description"]} if function["description"] else {}
        schema: Mapping[str, Any] = function["parameters"]
        tools.append(
            {
                "name": function["name"],
                **described,
                "input_schema": {**schema, "type": "object"},
                **flags,
            }
        )
    return tools


def _sampling(
    parameters: Parameters,
    traits: Traits,
    thoughts: ThinkingOptions,
    capabilities: CapabilityFilter,
) -> JsonObject:
    """Return temperature or top_p; Claude takes one of them, and none while it thinks."""
    sampling: JsonObject = {}
    if parameters.temperature is not None:
        sampling["temperature"] = parameters.temperature
    if parameters.top_p is not None:
        sampling["top_p"] = parameters.top_p
    if not traits.versioned:
        return sampling
    if thoughts.on:
        for name in sampling:
            capabilities.omit(name, "It takes none while it thinks.")
        return {}
    if len(sampling) == 2:
        capabilities.omit("top_p", "It takes temperature or top_p, not both.")
        del sampling["top_p"]
    return sampling


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


def _drop_thoughts(turns: Turns) -> None:
    """Drop all thoughts; what they led to stays."""
    for turn in turns.turns:
        turn.blocks[:] = [block for block in turn.blocks if not is_thought(block)]


def _mark_for_cache(
    body: JsonObject, stable: Turn | None, cache: bool | Literal["5m", "1h"]
) -> None:
    """Mark the ends of what will be the same next time: tools, instructions, conversation.

    https://platform.claude.com/docs/en/build-with-claude/prompt-caching: what comes before a mark
    is kept, in this order; too little to keep is no mistake.
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
