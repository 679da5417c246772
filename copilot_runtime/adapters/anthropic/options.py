"""Translates parameters for Claude's models: tool choice, reasoning and sampling.

Claude 4.5 and older reason within a budget of tokens, newer ones by `effort`. In some models
reasoning cannot be disabled; those refuse a forced tool.
https://platform.claude.com/docs/en/build-with-claude/thinking
"""

from dataclasses import dataclass
from typing import assert_never

from copilot_runtime.adapters.anthropic.models import Traits
from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.tools import required_tool
from copilot_runtime.api.run_input import Parameters
from copilot_runtime.base.jsonvalue import JsonObject

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
            if forced or resumed:  # it refuses to think in the middle
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
    # without `display` newer models send their thoughts empty, and their words between calls too
    thinking: JsonObject = {"type": "adaptive", "display": "summarized"}
    if bound:  # context and tools of a page change, and with them what thoughts are bound to
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
