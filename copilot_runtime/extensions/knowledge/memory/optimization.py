"""The stored optimisation of a window; the memory itself stays complete.

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
"""The type of summaries, which are stored below their conversation."""


@dataclass(frozen=True, slots=True)
class WindowOptimization:
    """The differences of a window from its memory; `version` is that of the stored resource."""

    replaced: Mapping[str, str] = field(default_factory=dict[str, str])
    """URIs of replaced items, with the URI of the equal item or summary that replaces each."""
    trimmed: Mapping[str, int] = field(default_factory=dict[str, int])
    """URIs of trimmed items, with the number of tokens that remain."""
    summaries: Mapping[str, int] = field(default_factory=dict[str, int])
    """Summaries, and the tokens of each."""
    version: str = ""

    def apply(self, identifiers: Iterable[Identifier]) -> list[Identifier]:
        """Return the window of the identifiers that an actor may read.

        A summary is included if the actor may read all items that it replaces; otherwise the
        readable ones are. It has the position of the first of them.
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
        """Return the URIs of the items that another one replaces."""
        return [uri for uri, other in self.replaced.items() if other == by]

    def _trim(self, uri: str, identifier: Identifier) -> Identifier:
        tokens = self.trimmed.get(uri)
        if tokens is None or (identifier.tokens or 0) <= tokens:
            return identifier
        return replace(identifier, tokens=tokens)


def identify_window(conversation: Identifier | str) -> Identifier:
    """Return the identifier of the stored optimisation of a conversation."""
    return Identifier(WINDOW, "current", strip_namespace(str(conversation)))


async def load_optimization(
    resources: ResourceIndex, conversation: Identifier | str
) -> WindowOptimization:
    """Return the stored optimisation of a window; an empty one if there is none."""
    found = await resources.get([identify_window(conversation)])
    return _decode(found[0]) if found else WindowOptimization()


async def save_optimization(
    resources: ResourceIndex, conversation: Identifier | str, optimization: WindowOptimization
) -> None:
    """Store the optimisation of a window. Raises `VersionConflict` on a concurrent write."""
    fields: JsonObject = {
        "replaced": {**optimization.replaced},
        "trimmed": {**optimization.trimmed},
        "summaries": {**optimization.summaries},
    }
    resource = Resource(identify_window(conversation), fields=fields)
    await resources.put(resource, expected=optimization.version)


def _decode(resource: Resource) -> WindowOptimization:
    """Decode a stored optimisation; malformed fields are ignored."""
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
