"""What models take at Amazon Bedrock, by the vendor in their names.

https://docs.aws.amazon.com/bedrock/latest/userguide/conversation-inference-supported-models-features.html
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from copilot_runtime.adapters.anthropic import models as claude

Effort = Literal["gpt-oss", "nova", "general", "none"]


@dataclass(frozen=True, slots=True)
class Traits:
    """What one model takes. `name` is the vendor's own, `effort` how one says how hard to think.

    A `claude` has its own ways for that.
    """

    vendor: str
    name: str
    effort: Effort = "none"

    @property
    def claude(self) -> claude.Traits | None:
        """What it takes if it is a Claude."""
        return claude.find_traits(self.name) if self.vendor == "anthropic" else None

    @property
    def rich_results(self) -> bool:
        """It takes images and failures as what came of a call."""
        return self.vendor in ("anthropic", "amazon")


_PLACE = re.compile(r"^(global|us-gov|us|ca|sa|eu|uk|me|il|af|ap|apac|au|in|jp|kr)\.")
"""Where an inference profile answers: the beginning of its id."""


@lru_cache(maxsize=256)  # a client may name a model in each request
def find_traits(model: str) -> Traits:
    """Return what a model takes, named by its id, an inference profile's or an ARN.

    The id of an application's inference profile does not name a model: it counts as unknown.
    """
    id = model.rpartition("/")[2].lower()
    vendor, _, name = _PLACE.sub("", id, count=1).partition(".")
    if not name:
        return Traits("", model, "general")
    if vendor == "openai" and name.startswith("gpt-oss"):
        return Traits(vendor, name, "gpt-oss")
    if vendor == "amazon" and name.startswith("nova-2"):
        return Traits(vendor, name, "nova")
    return Traits(vendor, name)
