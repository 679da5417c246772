"""The capabilities of models at Amazon Bedrock, by the vendor in their names.

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
    """The capabilities of one model. `name` is the vendor's own, `effort` the form of the effort.

    A Claude has reasoning options of its own, see `claude`.
    """

    vendor: str
    name: str
    effort: Effort = "none"

    @property
    def claude(self) -> claude.Traits | None:
        """The capabilities of a Claude; `None` for other models."""
        return claude.find_traits(self.name) if self.vendor == "anthropic" else None

    @property
    def rich_results(self) -> bool:
        """Whether it accepts images and failures in tool results."""
        return self.vendor in ("anthropic", "amazon")


_PLACE = re.compile(r"^(global|us-gov|us|ca|sa|eu|uk|me|il|af|ap|apac|au|in|jp|kr)\.")
"""The geography of an inference profile: the prefix of its id."""


@lru_cache(maxsize=256)  # a client may name a model in each request
def find_traits(model: str) -> Traits:
    """Return the capabilities of a model by its id, that of an inference profile, or an ARN.

    The id of an application inference profile does not name a model: it counts as unknown.
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
