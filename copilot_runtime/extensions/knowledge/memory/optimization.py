"""What was done to make a window smaller: kept beside a memory, which itself loses nothing.

It is the resource `context.Window.current` below the conversation. Its fields say which identifiers
of the memory another one stands for, and of which only the beginning is read. What is appended
afterwards is not in it, and so is there as ever.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from copilot_runtime.base.jsonvalue import JsonObject, as_count, as_object
from copilot_runtime.extensions.knowledge.identifiers import (
    Identifier,
    parse_identifier,
    strip_namespace,
)
from copilot_runtime.extensions.knowledge.resources import Resource, ResourceIndex

WINDOW = "context.Window"
SUMMARY = "context.Summary"
"""The type of what stands for older items. It is below the conversation, as they are."""


@dataclass(frozen=True, slots=True)
class WindowOptimization:
    """How a window differs from its memory. `version` is that of the resource it was read from."""

    replaced: Mapping[str, str] = field(default_factory=dict[str, str])
    """By URI, the URI of what stands for it: the first of equal ones, or a summary."""
    trimmed: Mapping[str, int] = field(default_factory=dict[str, int])
    """By URI, of how many tokens its beginning is read."""
    summaries: Mapping[str, int] = field(default_factory=dict[str, int])
    """Summaries, and the tokens of each."""
    version: str = ""

    def apply(self, identifiers: Iterable[Identifier]) -> list[Identifier]:
        """Return a window of what somebody may read.

        A summary is there for those who may read all that it stands for; all others see of that
        what they may. It is where the first of these was.
        """
        readable = {str(it): it for it in identifiers}
        usable = {
            uri: tokens
            for uri, tokens in self.summaries.items()
            if all(one in readable for one in self.find_sources(uri))
        }
        window: dict[str, Identifier] = {}
        for uri, identifier in readable.items():
            by = self.replaced.get(uri, "")
            if by in usable:
                window[by] = parse_identifier(by, usable[by])
            elif by not in readable or by in self.replaced:
                window[uri] = self._trim(uri, identifier)
        return [*window.values()]

    def find_sources(self, by: str) -> list[str]:
        """Return the URIs of what something stands for."""
        return [uri for uri, other in self.replaced.items() if other == by]

    def _trim(self, uri: str, identifier: Identifier) -> Identifier:
        tokens = self.trimmed.get(uri)
        if tokens is None or (identifier.tokens or 0) <= tokens:
            return identifier
        return replace(identifier, tokens=tokens)


def identify_window(conversation: Identifier | str) -> Identifier:
    """Return the resource that says how the window of a conversation was made smaller."""
    return Identifier(WINDOW, "current", strip_namespace(str(conversation)))


async def load_optimization(
    resources: ResourceIndex, conversation: Identifier | str
) -> WindowOptimization:
    """Return how a window was made smaller; not at all, if nobody has asked for that."""
    found = await resources.get([identify_window(conversation)])
    return _decode(found[0]) if found else WindowOptimization()


async def save_optimization(
    resources: ResourceIndex, conversation: Identifier | str, optimization: WindowOptimization
) -> None:
    """Store how a window is made smaller. Raises `VersionConflict` if somebody else has."""
    fields: JsonObject = {
        "replaced": {**optimization.replaced},
        "trimmed": {**optimization.trimmed},
        "summaries": {**optimization.summaries},
    }
    resource = Resource(identify_window(conversation), fields=fields)
    await resources.put(resource, expected=optimization.version)


def _decode(resource: Resource) -> WindowOptimization:
    """Read what `save_optimization` has stored; what is none of it counts for nothing."""
    replaced = as_object(resource.fields.get("replaced"))
    return WindowOptimization(
        {uri: by for uri, by in replaced.items() if isinstance(by, str)},
        _read_counts(resource, "trimmed"),
        _read_counts(resource, "summaries"),
        resource.version,
    )


def _read_counts(resource: Resource, name: str) -> Mapping[str, int]:
    values = as_object(resource.fields.get(name))
    return {uri: count for uri, value in values.items() if (count := as_count(value)) is not None}
