"""Rank the rows of a vector index by score, and diversify results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.index import Filter
from copilot_runtime.extensions.knowledge.vectors.quantized import Floats, bound_scores, score_rows
from copilot_runtime.extensions.knowledge.vectors.state import Block

DIGITS = 6
"""Decimal digits of scores, limited by the precision of float32."""

TOLERANCE = 0.5 * 10.0**-DIGITS
"""Tolerance below a threshold, from rounding."""
_FEW = 1000
"""Maximum number of rows scored directly, without bounds."""
_GROWTH = 8
"""Factor by which the number of rows grows if too many of them are about the same things."""


Narrow = Callable[[Block, NDArray[np.bool_], Floats, int], NDArray[np.intp] | None]
"""Selects candidate rows of a block within a mask; `None` for all rows of the mask."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A row of a result."""

    score: float
    block: Block
    row: int

    @property
    def vector(self) -> Floats:
        return self.block.segment.vectors[self.row]

    @property
    def uri(self) -> str:
        return self.block.segment.columns.uris[self.row]

    def identify(self) -> Identifier:
        """Return the identifier of the row's resource, with the score."""
        return self.block.segment.identifier(self.row).score_as(round(self.score, DIGITS))


def rank(
    blocks: Sequence[Block],
    queries: Floats,
    filter: Filter,
    limit: int,
    narrow: Narrow | None = None,
) -> list[Hit]:
    """Return the best rows that match a filter, at most `limit` if it is not 0.

    If the filter is `distinct`, other rows of a thing are left out. A row's score is its best one
    over all queries, which have length 1. Equal scores are in the order in which their rows were
    first added. The results are those of a full comparison, unless `narrow` omits rows.
    """
    count = limit
    while True:
        hits = _rank(blocks, queries, filter, count, narrow)
        best: dict[str, Hit] = {}
        for hit in hits:
            best.setdefault(filter.get_key(hit.uri), hit)
        if len(best) >= limit or len(hits) < count:
            return [*best.values()][: limit or None]
        count *= _GROWTH


def _rank(
    blocks: Sequence[Block],
    queries: Floats,
    filter: Filter,
    limit: int,
    narrow: Narrow | None,
) -> list[Hit]:
    floor = (filter.threshold or 0.0) - TOLERANCE
    selections = [(block, block.select(filter)) for block in blocks]
    candidates: list[_Candidates] = []
    for block, mask in selections:
        if narrow and limit and (rows := narrow(block, mask, queries, limit)) is not None:
            candidates.append(_score_now(block, rows, queries))
        elif mask.any():
            candidates.append(_find_candidates(block, mask, queries))
    if 0 < limit < sum(len(one.rows) for one in candidates):
        lowest = np.concatenate([one.lowest for one in candidates])
        floor = max(floor, float(np.partition(lowest, -limit)[-limit]))
    found = [_score(one, queries, floor) for one in candidates]
    return _sort(found, (filter.threshold or 0.0) - TOLERANCE, limit)


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Candidate rows of a block, with bounds of their scores."""

    block: Block
    rows: NDArray[np.intp]
    lowest: NDArray[np.floating]
    highest: NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class _Scores:
    block: Block
    rows: NDArray[np.intp]
    scores: NDArray[np.float64]


def _find_candidates(block: Block, mask: NDArray[np.bool_], queries: Floats) -> _Candidates:
    rows = np.flatnonzero(mask)
    if len(rows) <= _FEW:
        return _score_now(block, rows, queries)
    segment = block.segment
    bounds = bound_scores(segment.vectors, segment.codes, queries)
    if len(rows) == len(mask):
        return _Candidates(block, rows, bounds.lowest, bounds.highest)
    return _Candidates(block, rows, bounds.lowest[rows], bounds.highest[rows])


def _score_now(block: Block, rows: NDArray[np.intp], queries: Floats) -> _Candidates:
    scores = score_rows(block.segment.vectors, queries, rows)
    return _Candidates(block, rows, scores, scores)


def _score(candidates: _Candidates, queries: Floats, floor: float) -> _Scores:
    rows = candidates.rows[candidates.highest >= floor]
    scores = score_rows(candidates.block.segment.vectors, queries, rows)
    return _Scores(candidates.block, rows, scores)


def _sort(found: Sequence[_Scores], floor: float, limit: int) -> list[Hit]:
    if not found:
        return []
    scores = np.concatenate([one.scores for one in found])
    positions = np.concatenate([one.block.positions[one.rows] for one in found])
    owners = np.repeat(np.arange(len(found)), [len(one.rows) for one in found])
    rows = np.concatenate([one.rows for one in found])
    order = np.lexsort((positions, -scores))
    order = order[scores[order] >= floor]
    if limit > 0:
        order = order[:limit]
    return [
        Hit(score, found[owner].block, row)
        for score, owner, row in zip(
            scores[order].tolist(), owners[order].tolist(), rows[order].tolist(), strict=True
        )
    ]


class RankedRow(Protocol):
    """A row of a result with its vector."""

    @property
    def score(self) -> float: ...

    @property
    def vector(self) -> Floats: ...


HitT = TypeVar("HitT", bound=RankedRow)


def check_diversity(diversity: float | None) -> None:
    """Raise `Misuse` if the diversity is not between 0 and 1."""
    if diversity is not None and not 0 <= diversity <= 1:
        raise Misuse(f"A diversity is between 0 and 1, not {diversity}.")


def diversify(hits: Sequence[HitT], diversity: float, limit: int) -> list[HitT]:
    """Reorder hits by maximal marginal relevance, at most `limit` of them if it is not 0.

    With a diversity of 0 the order is unchanged; with 1, only dissimilarity counts after the first.
    Carbonell and Goldstein, 1998: https://dl.acm.org/doi/10.1145/290941.291025
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
