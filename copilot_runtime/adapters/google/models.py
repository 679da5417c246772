"""What Gemini's models take, by the generation in their names.

https://ai.google.dev/gemini-api/docs/thinking and the table of the OpenAI compatibility there.
A name without a generation (`gemini-flash-latest`, a tuned model) counts as a new one.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Thinking = Literal["never", "budget", "level"]


@dataclass(frozen=True, slots=True)
class Traits:
    """What one model takes. `signed_calls`: it refuses to see its calls unsigned."""

    thinking: Thinking = "level"
    signed_calls: bool = False


BUDGETS = {"minimal": 1_024, "low": 1_024, "medium": 8_192, "high": 24_576}
"""Effort → tokens to think with, for models that do not know levels."""

_GENERATION = re.compile(r"gemini-(\d+)(?:\.(\d+))?")


@lru_cache(maxsize=256)  # a client may name a model in each request
def find_traits(model: str) -> Traits:
    """Return what a model takes."""
    name = model.rpartition("/")[2].lower()
    if not name.startswith("gemini-"):
        return Traits()
    found = _GENERATION.match(name)
    generation = float(f"{found[1]}.{found[2] or 0}") if found else 3.0
    if generation < 2.5:
        return Traits("never")
    if generation < 3:
        return Traits("budget")
    return Traits("level", signed_calls=True)
