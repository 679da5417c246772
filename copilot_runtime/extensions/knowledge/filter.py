"""What a search wants of the resources it finds."""

from collections.abc import Iterable
from dataclasses import dataclass

from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsonvalue import to_text
from copilot_runtime.extensions.knowledge.access import FULL_ACCESS, Access, select
from copilot_runtime.extensions.knowledge.identifiers import Identifier, contains, encode_identifier


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Applied in this order: access, type and prefix, threshold, limit, tokens."""

    access: Access = FULL_ACCESS
    type: str = ""
    """`common.Message`, or nothing for all types."""
    prefix: str = ""
    """The URI of a resource: it, and what is below it."""
    threshold: float | None = None
    """The lowest score that counts, for indexes that give scores."""
    limit: int = 0
    """How many at most; zero or less for all."""
    max_tokens: int = 0
    """How many tokens in all: results are taken until one does not fit. Zero or less for all."""

    def matches(self, identifier: Identifier) -> bool:
        """Return whether type and prefix let a resource through, whoever may see it."""
        if self.type and identifier.type != self.type:
            return False
        return not self.prefix or contains(self.prefix, str(identifier))

    async def select(self, found: Iterable[Identifier]) -> list[Identifier]:
        """Return the first of those that access, type and prefix let through; see `cut`."""
        return self.cut(await select(self.access, filter(self.matches, found)))

    def cut(self, found: Iterable[Identifier]) -> list[Identifier]:
        """Return the first of what was found, as limit and tokens allow.

        Raises `Misuse` if tokens are counted and one has none.
        """
        results: list[Identifier] = []
        left = self.max_tokens
        for identifier in found:
            if self.limit > 0 and len(results) >= self.limit:
                break
            if self.max_tokens > 0:
                if identifier.tokens is None:
                    fields = to_text(encode_identifier(identifier))
                    raise Misuse(f"Identifier missing tokens field: {fields}")
                left -= identifier.tokens
                if left < 0:
                    break
            results.append(identifier)
        return results
