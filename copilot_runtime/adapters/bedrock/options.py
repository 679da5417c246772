"""The parameters of a request as a model at Bedrock takes them.

Converse has fields for most of them; how hard to think is in fields of each vendor.
"""

from dataclasses import dataclass, field
from typing import Any

from copilot_runtime.adapters.anthropic import options as claude
from copilot_runtime.adapters.bedrock.models import Traits
from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.api.run_input import Parameters
from copilot_runtime.base.jsonvalue import JsonObject

_USUAL_MAX_TOKENS = 32_000


def filter_parameters(
    parameters: Parameters, traits: Traits, capabilities: CapabilityFilter
) -> Parameters:
    """Return the parameters that the API and the model take."""
    if traits.claude:
        return claude.filter_parameters(parameters, traits.claude, capabilities)
    why = "Bedrock has no setting for this model's thoughts."
    reasons = {"reasoning_effort": why} if traits.effort == "none" else {}
    return capabilities.apply(parameters, reasons)


@dataclass(frozen=True, slots=True)
class Thinking:
    """How the model is asked to think: Converse's `effort`, and the fields of this model only.

    `max_tokens` is how long its answer may be, thoughts included.
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
    """Return how the model is to think.

    `forced`: it must call a tool. `resumed`: it goes on after a call, and the thought before that
    call is not known any more.
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
