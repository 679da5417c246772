"""The filter of a search."""

from collections.abc import Iterable
from dataclasses import dataclass

from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsonvalue import to_text
from copilot_runtime.extensions.knowledge.access import FULL_ACCESS, Access, select
from copilot_runtime.extensions.knowledge.identifiers import Identifier, contains, encode_identifier


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Conditions of a search, applied in order: access, type, prefix, threshold, limit, tokens."""

    access: Access = FULL_ACCESS
    type: str = ""
    """`common.Message`, or nothing for all types."""
    prefix: str = ""
    """The URI of a resource: it, and what is below it."""
    threshold: float | None = None
    """The lowest score that counts, for indexes that give scores."""
    limit: int = 0
    """Maximum number of results; unlimited if zero or less."""
    max_tokens: int = 0
    """Maximum total of tokens: the first result that exceeds it ends the list; 0 is unlimited."""

    def matches(self, identifier: Identifier) -> bool:
        """Return whether a resource matches type and prefix, without checking access."""
        if self.type and identifier.type != self.type:
            return False
        return not self.prefix or contains(self.prefix, str(identifier))

    async def select(self, found: Iterable[Identifier]) -> list[Identifier]:
        """Return the identifiers that match access, type and prefix, limited as by `cut`."""
        return self.cut(await select(self.access, filter(self.matches, found)))

    def cut(self, found: Iterable[Identifier]) -> list[Identifier]:
        """Return the first identifiers within the limits of count and tokens.

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
