"""Maximal marginal relevance: answers that are not all the same.

Carbonell and Goldstein, 1998: https://dl.acm.org/doi/10.1145/290941.291025
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.knowledge.vectors.quantized import Floats


class RankedRow(Protocol):
    """A row that answers, with its vector."""

    @property
    def score(self) -> float: ...

    @property
    def vector(self) -> Floats: ...


HitT = TypeVar("HitT", bound=RankedRow)


def check_diversity(diversity: float | None) -> None:
    """Raise `Misuse` for a diversity that is none."""
    if diversity is not None and not 0 <= diversity <= 1:
        raise Misuse(f"A diversity is between 0 and 1, not {diversity}.")


def diversify(hits: Sequence[HitT], diversity: float, limit: int) -> list[HitT]:
    """Return hits so that each is relevant, and unlike those before it; at most `limit`, if not 0.

    With a diversity of 0 they stay as they are; with 1, only what is unlike counts after the first.
    """
    if not hits:
        return []
    count = min(limit, len(hits)) if limit > 0 else len(hits)
    vectors = np.array([hit.vector for hit in hits])
    scores = np.array([hit.score for hit in hits])
    likeness = np.full(len(hits), -np.inf)
    chosen = [0]
    while len(chosen) < count:
        likeness = np.maximum(likeness, vectors @ vectors[chosen[-1]])
        gain = (1 - diversity) * scores - diversity * likeness
        gain[chosen] = -np.inf
        chosen.append(int(gain.argmax()))
    return [hits[row] for row in chosen]
