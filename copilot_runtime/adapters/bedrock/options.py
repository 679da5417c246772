"""The parameters of a request as a model at Bedrock takes them.

Converse has a place for most of it; how hard to think, each vendor says in its own fields.
"""

from dataclasses import dataclass, field
from typing import Any

from copilot_runtime.adapters.anthropic import options as claude
from copilot_runtime.adapters.bedrock.models import Traits
from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.interfaces import Parameters
from copilot_runtime.jsonvalue import JsonObject

_USUAL_MAX_TOKENS = 32_000
_LEVELS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high"}


def filter_parameters(
    parameters: Parameters, traits: Traits, capabilities: CapabilityFilter
) -> Parameters:
    """Return the parameters that the API and the model take."""
    if traits.claude:
        return claude.filter_parameters(parameters, traits.claude, capabilities)
    parameters = capabilities.apply(parameters)
    if traits.effort == "none":
        why = "Bedrock has no setting for this model's thoughts."
        parameters = capabilities.apply(parameters, {"reasoning_effort": why})
    return parameters


@dataclass(frozen=True, slots=True)
class Thinking:
    """How the model is asked to think: Converse's `effort`, and the fields only this model knows.

    `max_tokens` is how long its answer may be, thoughts included.
    """

    max_tokens: int | None
    effort: str | None = None
    fields: JsonObject = field(default_factory=dict[str, Any])
    on: bool = False

    def filter_sampling(
        self, parameters: Parameters, traits: Traits, capabilities: CapabilityFilter
    ) -> Parameters:
        """Return the parameters without those that a Claude does not take together."""
        if traits.claude is None:
            return parameters
        if self.on:
            why = "It takes none while it thinks."
            return capabilities.apply(parameters, {"temperature": why, "top_p": why})
        if parameters.temperature is not None:
            why = "It takes temperature or top_p, not both."
            return capabilities.apply(parameters, {"top_p": why})
        return parameters


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
    level = _LEVELS[effort]
    match traits.effort:
        case "gpt-oss":
            return Thinking(most, fields={"reasoning_effort": level})
        case "nova":
            config = {"type": "enabled", "maxReasoningEffort": level}
            return Thinking(most, fields={"reasoningConfig": config})
        case _:
            return Thinking(most, level)
