"""Read resources as passages, with their parts and the labels of referenced things."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from copilot_runtime.api.retrieval import Passage
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.jsonvalue import get_text
from copilot_runtime.extensions.knowledge.access import Access
from copilot_runtime.extensions.knowledge.passages import (
    build_passage,
    cut_passages,
    find_links,
    find_parts,
)

if TYPE_CHECKING:
    from copilot_runtime.extensions.knowledge.identifiers import Identifier
    from copilot_runtime.extensions.knowledge.resources import Resource, ResourceIndex


class PassageReader:
    """Reads passages of the resources that `access` allows.

    `link` is the base URL of resource pages.
    """

    def __init__(self, resources: "ResourceIndex", access: Access, link: str = "") -> None:
        self._resources = resources
        self._access = access
        self._link = link

    async def read(self, resource: "Resource") -> Passage:
        """Return a readable resource as a passage."""
        (passage,) = await self._build([resource], {})
        return passage

    async def read_results(
        self, found: "Sequence[Identifier]", max_tokens: int = 0
    ) -> list[Passage]:
        """Return existing search results as passages, truncated to `max_tokens`."""
        resources = await self._resources.get_visible(found, self._access)
        scores = {str(identifier): identifier.score for identifier in found}
        return await call(cut_passages, await self._build(resources, scores), max_tokens)

    async def read_titles(self, found: "Sequence[Identifier]") -> dict[str, str]:
        """Return the titles of resources, by URI."""
        resources = await self._resources.get_visible(found, self._access)
        return {it.uri: build_passage(it).title for it in resources}

    async def _build(
        self, resources: "Sequence[Resource]", scores: Mapping[str, float | None]
    ) -> list[Passage]:
        parts = await self._read_parts(resources)
        names = await self._read_names([*resources, *chain.from_iterable(parts.values())])

        def build() -> list[Passage]:
            return [
                build_passage(it, self._link, scores.get(it.uri), parts[it.uri], names)
                for it in resources
            ]

        passages: list[Passage] = await call(build)
        return passages

    async def _read_parts(self, resources: "Sequence[Resource]") -> "dict[str, list[Resource]]":
        """Return the nameless parts of each resource, by its URI."""
        uris = {resource.uri: find_parts(resource) for resource in resources}
        every = [*dict.fromkeys(chain.from_iterable(uris.values()))]
        parts = {it.uri: it for it in await self._resources.get_visible(every, self._access)}
        return {uri: [parts[it] for it in below if it in parts] for uri, below in uris.items()}

    async def _read_names(self, resources: "Iterable[Resource]") -> dict[str, str]:
        """Return the labels of the things that resources refer to, by IRI."""
        iris: dict[str, str] = {}
        for resource in resources:
            iris |= find_links(resource)
        stored = (await self._resources.versions()).keys()
        found = await self._resources.get_visible(iris.keys() & stored, self._access)
        titles = {iris[it.uri]: get_text(it.fields, "title") for it in found}
        return {iri: title for iri, title in titles.items() if title}
