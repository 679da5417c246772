"""Finds resources by meaning that no index has: assistants, tools and tasks.

There are few of a type, and who looks for knowledge does not look for them. So they are compared
when somebody asks for their type.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from copilot_runtime.api.embedder import Embedder
from copilot_runtime.base.jsonvalue import get_text
from copilot_runtime.extensions.knowledge.filter import Filter
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.resource_types import describe
from copilot_runtime.extensions.knowledge.resources import Resource, ResourceIndex

_MOST = 2000
"""So many resources of a type are compared."""


class SimilarResources:
    """Compares what resources are for with what somebody looks for."""

    types = frozenset(("common.Assistant", "tool.ToolFunction", "plan.Task"))
    """What it finds."""

    def __init__(self, resources: ResourceIndex, embedder: Embedder) -> None:
        self._resources = resources
        self._embedder = embedder
        self._vectors: dict[str, NDArray[np.float32]] = {}
        """By what they are vectors of."""

    async def search(self, texts: Sequence[str], filter: Filter) -> list[Identifier]:
        """Return the resources of the type of a filter, the most alike first, with their scores."""
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
        """Return the vectors of texts; those of the last search are remembered."""
        before = self._vectors
        new = [*dict.fromkeys(text for text in texts if text not in before)]
        vectors = dict(zip(new, await self._embedder.embed(new), strict=True)) if new else {}
        self._vectors = {text: vectors[text] if text in vectors else before[text] for text in texts}
        return np.stack([self._vectors[text] for text in texts])


def _write_profile(resource: Resource) -> str:
    """Return what a resource is for, in words."""
    profile = describe(resource.fields) or get_text(resource.fields, "description")
    return "\n\n".join(filter(None, (resource.id.name, profile or resource.content)))
