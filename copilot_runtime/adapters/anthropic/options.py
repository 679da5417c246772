"""What a client wishes of a Claude model, as that model takes it: choice of tools, and thoughts.

Claude 4.5 and older think for a budget of tokens, newer ones as long as `effort` says; some cannot
be kept from thinking, and those do not let a tool be forced on them.
https://platform.claude.com/docs/en/build-with-claude/thinking
"""

from dataclasses import dataclass

from copilot_runtime.adapters.anthropic.models import Traits
from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.tools import required_tool
from copilot_runtime.interfaces import Parameters
from copilot_runtime.jsonvalue import JsonObject

BUDGETS = {"low": 2_048, "medium": 8_192, "high": 16_384}
"""Effort → tokens, for models that think for a budget. `minimal` is not to think at all."""

_LEAST_BUDGET = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class Thoughts:
    """How the model is to think: the fields `thinking` and `output_config.effort`."""

    thinking: JsonObject | None = None
    effort: str | None = None
    on: bool = False
    bound: bool = False
    """Thoughts are sent back to a model that refuses those of another conversation."""


def wishes_of(wishes: Parameters, traits: Traits, capabilities: CapabilityFilter) -> Parameters:
    """Return the wishes that the API and the model can fulfil."""
    reasons: dict[str, str] = {}
    if not traits.sampling:
        newer = "Claude 4.7 and newer models take no sampling parameters."
        reasons |= {"temperature": newer, "top_p": newer}
    if not traits.schemas:
        reasons["response_schema"] = "This model takes no schema for its answer."
    if traits.thinking == "never":
        reasons["reasoning_effort"] = "This model does not think."
    return capabilities.apply(capabilities.apply(wishes), reasons)


def choice_of(
    wishes: Parameters, traits: Traits, capabilities: CapabilityFilter
) -> JsonObject | None:
    """Return the choice of tools. Raises `Misuse` for a function without a name."""
    choice: JsonObject | None = None
    match wishes.tool_choice:
        case None:
            pass
        case "required" | "any":
            choice = {"type": "any"}
        case "function":
            choice = {"type": "tool", "name": required_tool(wishes)}
        case known:
            choice = {"type": known}
    if choice and choice["type"] in ("any", "tool") and not traits.forced_tools:
        capabilities.omit(
            f"tool_choice_{wishes.tool_choice}", "This model does not let a tool be forced on it."
        )
        choice = {"type": "auto"}
    if wishes.parallel_tool_calls is False and (choice is None or choice["type"] != "none"):
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": True}
    return choice


def thoughts_of(
    asked: bool | int | None,
    wishes: Parameters,
    traits: Traits,
    capabilities: CapabilityFilter,
    *,
    max_tokens: int,
    forced: bool,
    resumed: bool,
    shown: bool,
) -> Thoughts:
    """Return how the model is to think.

    `forced`: it must call a tool. `resumed`: it goes on after a call, and the thought before that
    call is not known any more. `shown`: the conversation has thoughts of its own.
    """
    effort = wishes.reasoning_effort
    if traits.thinking == "never":
        return Thoughts()
    if traits.thinking == "budget":
        named = None if effort is None else ("low" if effort == "minimal" else effort)
        budget = _budget(asked, effort, traits, max_tokens)
        if budget and forced:
            capabilities.omit("reasoning_effort", "It does not think when it must call a tool.")
        on = bool(budget) and not forced and not resumed  # it refuses to think in the middle
        return Thoughts(
            thinking={"type": "enabled", "budget_tokens": budget} if on else None,
            effort=named if traits.effort else None,
            on=on,
        )
    return _adaptive(asked, effort, traits, capabilities, forced=forced, shown=shown)


def _adaptive(
    asked: bool | int | None,
    effort: str | None,
    traits: Traits,
    capabilities: CapabilityFilter,
    *,
    forced: bool,
    shown: bool,
) -> Thoughts:
    wanted = bool(asked) if asked is not None else None
    if wanted is None and effort is not None:
        wanted = effort != "minimal"
    level = "low" if effort == "minimal" else effort
    if wanted is False or (forced and traits.off != "impossible"):
        match traits.off:
            case "absent":
                return Thoughts(effort=level)
            case "impossible":
                if asked is not None:
                    capabilities.omit("reasoning", "This model cannot be kept from thinking.")
            case off:
                return Thoughts(thinking={"type": off}, effort=level)
    if wanted is None and traits.off == "absent":
        return Thoughts(effort=level)
    # without `display` newer models send their thoughts empty, and their words between calls too
    thinking: JsonObject = {"type": "adaptive", "display": "summarized"}
    bound = traits.bound and shown
    if bound:  # context and tools of a page change, and with them what thoughts are bound to
        thinking["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
    return Thoughts(thinking=thinking, effort=level, on=True, bound=bound)


def _budget(
    asked: bool | int | None, effort: str | None, traits: Traits, max_tokens: int
) -> int | None:
    """Return for how many tokens to think, less than the answer may have in all."""
    if asked is None:
        budget = None if effort is None or traits.effort else BUDGETS.get(effort)
    elif asked is True:
        budget = BUDGETS.get(effort or "medium")
    else:
        budget = int(asked)
    if not budget:
        return None
    budget = min(max(budget, _LEAST_BUDGET), max_tokens - 1)
    return budget if budget >= _LEAST_BUDGET else None
