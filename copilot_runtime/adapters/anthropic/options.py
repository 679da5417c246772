"""The capabilities of Claude's models by version, and parameters within them.

A request beyond them is refused with 400; `genai-prices` has windows and prices, but none of this.
https://platform.claude.com/docs/en/about-claude/models/overview and the migration guides there.
Other models behind the same API (gateways, local servers) are taken for an older Claude.

Claude 4.5 and older reason within a budget of tokens, newer ones by `effort`. In some models
reasoning cannot be disabled; those refuse a forced tool.
https://platform.claude.com/docs/en/build-with-claude/thinking
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, assert_never

from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.tools import required_tool
from copilot_runtime.api.run_input import Parameters
from copilot_runtime.base.jsonvalue import JsonObject

Thinking = Literal["never", "budget", "adaptive"]
Off = Literal["absent", "disabled", "between_tools", "impossible"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The capabilities of one model.

    `max_tokens` is the maximum length of an answer, reasoning included. `thinking` is the way to
    enable reasoning, `off` the way to disable it (`absent`: by omitting the field). `bound`
    reasoning is refused in any other conversation.
    """

    max_tokens: int
    thinking: Thinking
    off: Off = "absent"
    effort: bool = False
    sampling: bool = False
    """It accepts `temperature` and `top_p`."""
    forced_tools: bool = True
    """It accepts a tool choice of `any` or of one tool."""
    schemas: bool = True
    """It accepts a JSON schema for its answer."""
    bound: bool = False
    eager: bool = False
    """It streams arguments if the tool has the flag for it."""
    versioned: bool = True
    """Its name is that of a Claude with a version, so the documented limits apply."""


_BEFORE = re.compile(r"claude-(\d+)(?:[-.](\d{1,2}))?-([a-z]+)")  # claude-3-5-haiku-20241022
_AFTER = re.compile(r"claude-([a-z]+)-(\d+)(?:[-.](\d{1,2}))?(?![\d.])")  # claude-opus-4-1-20250805
_BARE = re.compile(r"claude-([a-z]+)-(?:preview|latest)")  # claude-mythos-preview

_ALWAYS_THINK = ("fable", "mythos")
_LONG, _MIDDLE, _SHORT = 128_000, 64_000, 32_000


@lru_cache(maxsize=256)  # a client may name a model in each request
def find_traits(model: str) -> Traits:
    """Return the capabilities of a model, from any spelling of its name with a version."""
    family, version = _version_of(model.lower())
    if version is None:
        return Traits(max_tokens=_SHORT, thinking="budget", sampling=True, versioned=False)
    if version < (4, 6):
        return _older(family, version)
    always = family in _ALWAYS_THINK or (family == "opus" and version >= (5, 5))
    bound = version >= (5, 1)
    return Traits(
        max_tokens=_MIDDLE if version == (4, 6) and family == "sonnet" else _LONG,
        thinking="adaptive",
        off="impossible" if always else _off(family, version),
        effort=True,
        sampling=version < (4, 7),
        forced_tools=not (bound and (always or family == "sonnet")),
        bound=bound,
        eager=True,
    )


def _off(family: str, version: tuple[int, int]) -> Off:
    if version < (5, 0):
        return "absent"
    return "between_tools" if family == "sonnet" and version >= (5, 5) else "disabled"


def _older(family: str, version: tuple[int, int]) -> Traits:
    if version < (3, 7):
        most = 8_192 if version == (3, 5) else 4_096
        return Traits(max_tokens=most, thinking="never", sampling=True, schemas=False)
    return Traits(
        max_tokens=_SHORT if family == "opus" and version < (4, 5) else _MIDDLE,
        thinking="budget",
        effort=family == "opus" and version == (4, 5),
        sampling=True,
        eager=version >= (4, 5),
        schemas=version >= (4, 5) or (family == "opus" and version == (4, 1)),
    )


def _version_of(name: str) -> tuple[str, tuple[int, int] | None]:
    if found := _BEFORE.search(name):
        return found[3], (int(found[1]), int(found[2] or 0))
    if found := _AFTER.search(name):
        return found[1], (int(found[2]), int(found[3] or 0))
    if found := _BARE.search(name):
        return found[1], (5, 0)
    return "", None


BUDGETS = {"low": 2_048, "medium": 8_192, "high": 16_384}
"""Effort → reasoning budget in tokens, for models with one. `minimal` disables reasoning."""

_LEAST_BUDGET = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingOptions:
    """The fields `thinking` and `output_config.effort` of a request."""

    thinking: JsonObject | None = None
    effort: str | None = None
    on: bool = False
    bound: bool = False
    """The request contains reasoning that the model refuses in another conversation."""


def filter_parameters(
    parameters: Parameters, traits: Traits, capabilities: CapabilityFilter
) -> Parameters:
    """Return the parameters that the API and the model support."""
    reasons: dict[str, str] = {}
    if not traits.sampling:
        newer = "Claude 4.7 and newer models take no sampling parameters."
        reasons |= {"temperature": newer, "top_p": newer}
    if not traits.schemas:
        reasons["response_schema"] = "This model takes no schema for its answer."
    if traits.thinking == "never":
        reasons["reasoning_effort"] = "This model does not think."
    return capabilities.apply(parameters, reasons)


def build_tool_choice(
    parameters: Parameters, traits: Traits, capabilities: CapabilityFilter
) -> JsonObject | None:
    """Return the tool choice. Raises `Misuse` for a function without a name."""
    choice: JsonObject | None = None
    match parameters.tool_choice:
        case None:
            pass
        case "required" | "any":
            choice = {"type": "any"}
        case "function":
            choice = {"type": "tool", "name": required_tool(parameters)}
        case word:
            choice = {"type": word}
    if choice and choice["type"] in ("any", "tool") and not traits.forced_tools:
        capabilities.omit(
            f"tool_choice_{parameters.tool_choice}",
            "This model does not let a tool be forced on it.",
        )
        choice = {"type": "auto"}
    if parameters.parallel_tool_calls is False and (choice is None or choice["type"] != "none"):
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": True}
    return choice


def build_thinking(
    thinking: bool | int | None,
    parameters: Parameters,
    traits: Traits,
    capabilities: CapabilityFilter,
    *,
    max_tokens: int,
    forced: bool,
    resumed: bool,
    has_thoughts: bool,
) -> ThinkingOptions:
    """Return the reasoning options; `thinking` is the adapter's option of that name.

    `forced`: the model must call a tool. `resumed`: the request continues after a call whose
    reasoning is not available. `has_thoughts`: the conversation contains reasoning.
    """
    effort = parameters.reasoning_effort
    level = "low" if effort == "minimal" else effort
    match traits.thinking:
        case "never":
            return ThinkingOptions()
        case "budget":
            budget = _budget(thinking, effort, traits, max_tokens)
            if budget and forced:
                capabilities.omit("reasoning_effort", "It does not think when it must call a tool.")
            if forced or resumed:  # it refuses reasoning that starts in the middle of a turn
                budget = None
            options = {"type": "enabled", "budget_tokens": budget} if budget else None
            effort_level = level if traits.effort else None
            return ThinkingOptions(thinking=options, effort=effort_level, on=bool(budget))
        case "adaptive":
            is_on = None if effort is None else effort != "minimal"
            if thinking is not None:
                is_on = bool(thinking)
            bound = traits.bound and has_thoughts
            if traits.off == "impossible":
                if thinking is not None and not thinking:
                    capabilities.omit("reasoning", "This model cannot be kept from thinking.")
                return _think_adaptively(level, bound=bound)
            if forced or is_on is False or (is_on is None and traits.off == "absent"):
                return _do_not_think(level, traits.off)
            return _think_adaptively(level, bound=bound)
        case _:
            assert_never(traits.thinking)


def _think_adaptively(level: str | None, *, bound: bool) -> ThinkingOptions:
    # without `display`, newer models send empty reasoning, and empty text between calls
    thinking: JsonObject = {"type": "adaptive", "display": "summarized"}
    if bound:  # context and tools of a page change, and reasoning is bound to them
        thinking["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
    return ThinkingOptions(thinking=thinking, effort=level, on=True, bound=bound)


def _do_not_think(level: str | None, off: str) -> ThinkingOptions:
    return ThinkingOptions(thinking=None if off == "absent" else {"type": off}, effort=level)


def filter_sampling(
    parameters: Parameters, capabilities: CapabilityFilter, *, thinks: bool
) -> Parameters:
    """Return the parameters without the sampling parameters that a Claude refuses.

    It accepts either `temperature` or `top_p`, and neither with reasoning.
    """
    reasons: dict[str, str] = {}
    if thinks:
        reasons = dict.fromkeys(("temperature", "top_p"), "It takes none while it thinks.")
    elif parameters.temperature is not None:
        reasons = {"top_p": "It takes temperature or top_p, not both."}
    return capabilities.apply(parameters, reasons)


def _budget(
    thinking: bool | int | None, effort: str | None, traits: Traits, max_tokens: int
) -> int | None:
    """Return the reasoning budget in tokens, below `max_tokens`, or `None` without reasoning."""
    if thinking is None:
        budget = None if effort is None or traits.effort else BUDGETS.get(effort)
    elif thinking is True:
        budget = BUDGETS.get(effort or "medium")
    else:
        budget = int(thinking)
    if not budget:
        return None
    budget = min(max(budget, _LEAST_BUDGET), max_tokens - 1)
    return budget if budget >= _LEAST_BUDGET else None
