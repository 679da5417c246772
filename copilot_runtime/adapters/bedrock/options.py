"""What a client wishes of a model at Bedrock, as that model takes it.

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


def wishes_of(wishes: Parameters, traits: Traits, capabilities: CapabilityFilter) -> Parameters:
    """Return the wishes that the API and the model can fulfil."""
    if traits.claude:
        return claude.wishes_of(wishes, traits.claude, capabilities)
    wishes = capabilities.apply(wishes)
    if traits.effort == "none":
        why = "Bedrock has no setting for this model's thoughts."
        wishes = capabilities.apply(wishes, {"reasoning_effort": why})
    return wishes


@dataclass(frozen=True, slots=True)
class Thinking:
    """How the model is asked to think: Converse's `effort`, and the fields only this model knows.

    `max_tokens` is how long its answer may be, thoughts included.
    """

    max_tokens: int | None
    effort: str | None = None
    fields: JsonObject = field(default_factory=dict[str, Any])
    on: bool = False

    def leaving(
        self, wishes: Parameters, traits: Traits, capabilities: CapabilityFilter
    ) -> Parameters:
        """Return the wishes without those that a Claude does not take together."""
        if traits.claude is None:
            return wishes
        if self.on:
            why = "It takes none while it thinks."
            return capabilities.apply(wishes, {"temperature": why, "top_p": why})
        if wishes.temperature is not None:
            why = "It takes temperature or top_p, not both."
            return capabilities.apply(wishes, {"top_p": why})
        return wishes


def thinking_of(
    wishes: Parameters,
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
    most, effort = wishes.max_tokens, wishes.reasoning_effort
    if effort is None:
        return Thinking(most)
    if traits.claude:
        limit = most or min(traits.claude.max_tokens, _USUAL_MAX_TOKENS)
        thoughts = claude.thoughts_of(
            None,
            wishes,
            traits.claude,
            capabilities,
            max_tokens=limit,
            forced=forced,
            resumed=resumed,
            shown=False,
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
