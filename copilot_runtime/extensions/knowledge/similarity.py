"""Similarity search over resources that are not indexed: assistants, tools and tasks.

There are few of each type, and general searches must not return them. So they are compared
only by a search that names their type.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from copilot_runtime.api.adapter import Embedder
from copilot_runtime.base.jsonvalue import get_text
from copilot_runtime.extensions.knowledge.filter import Filter
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.resource_types import describe
from copilot_runtime.extensions.knowledge.resources import Resource, ResourceIndex

_MOST = 2000
"""Maximum number of resources of a type that are compared."""


class SimilarResources:
    """Compares the descriptions of resources with the texts of a search."""

    types = frozenset(("common.Assistant", "tool.ToolFunction", "plan.Task"))
    """The types of resources that it searches."""

    def __init__(self, resources: ResourceIndex, embedder: Embedder) -> None:
        self._resources = resources
        self._embedder = embedder
        self._vectors: dict[str, NDArray[np.float32]] = {}
        """Cached vectors by their text."""

    async def search(self, texts: Sequence[str], filter: Filter) -> list[Identifier]:
        """Return the resources of the filter's type with scores, the most similar first."""
        found = await self._resources.find_by_type(filter.type, access=filter.access)
        chosen = [one for one in found if filter.matches(one)][-_MOST:]
        resources = await self._resources.get(chosen)
        if not (resources and texts):
            return []
        vectors = await self._embed([_write_profile(one) for one in resources])
        scores = (vectors @ (await self._embedder.embed_queries(texts)).T).max(axis=1).tolist()
        least = -1.0 if filter.threshold is None else filter.threshold
        ranked = sorted(zip(scores, resources, strict=True), key=lambda row: (-row[0], row[1].uri))
        return filter.cut(one.id.score_as(score) for score, one in ranked if score >= least)

    async def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts; the vectors of the last search are cached."""
        before = self._vectors
        new = [*dict.fromkeys(text for text in texts if text not in before)]
        vectors = dict(zip(new, await self._embedder.embed(new), strict=True)) if new else {}
        self._vectors = {text: vectors[text] if text in vectors else before[text] for text in texts}
        return np.stack([self._vectors[text] for text in texts])


def _write_profile(resource: Resource) -> str:
    """Return the description of a resource that is embedded."""
    profile = describe(resource.fields) or get_text(resource.fields, "description")
    return "\n\n".join(filter(None, (resource.id.name, profile or resource.content)))
