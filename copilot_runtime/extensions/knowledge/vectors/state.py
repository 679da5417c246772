"""Immutable snapshots of a vector table."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from copilot_runtime.extensions.knowledge.access import FULL_ACCESS
from copilot_runtime.extensions.knowledge.identifiers import Identifier, contains
from copilot_runtime.extensions.knowledge.index import Filter
from copilot_runtime.extensions.knowledge.vectors.segment import Row, RowChange, Segment

_MOST_MASKS = 32


class Block:
    """Rows of a table. A block never changes: `without` returns another one of the same rows."""

    def __init__(self, segment: Segment, name: str = "") -> None:
        self.segment = segment
        self.name = name
        self.positions = np.array(segment.columns.positions, np.int64)
        self.row_numbers = {uri: row for row, uri in enumerate(segment.columns.uris)}
        self.current = np.ones(len(segment), np.bool_)
        """Mask of the rows that no later change replaces or removes."""
        self.count = len(segment)
        """Number of current rows."""
        self._masks: dict[object, NDArray[np.bool_]] = {}

    def __len__(self) -> int:
        return len(self.segment)

    @property
    def is_half_dead(self) -> bool:
        return self.count * 2 < len(self)

    def find(self, uri: str) -> int | None:
        """Return the current row of a URI, or `None`."""
        row = self.row_numbers.get(uri)
        return row if row is not None and self.current[row] else None

    def find_many(self, uris: Collection[str]) -> Iterable[tuple[str, int]]:
        """Return the current rows of some URIs, a set or the keys of a dictionary."""
        common = self.row_numbers.keys() & uris
        return ((uri, row) for uri in common if (row := self.find(uri)) is not None)

    def without(self, uris: Collection[str]) -> "Block":
        """Return the block without the rows of some URIs."""
        rows = [row for _, row in self.find_many(uris)]
        if not rows:
            return self
        other = copy(self)
        other.current = self.current.copy()
        other.current[rows] = False
        other.count = self.count - len(rows)
        return other

    def restore(self) -> "Block":
        """Return the block with all rows current."""
        other = copy(self)
        other.current = np.ones(len(self), np.bool_)
        other.count = len(self)
        return other

    def select(self, filter: Filter) -> NDArray[np.bool_]:
        """Return a mask of the rows that match a filter; masks are cached."""
        key = (filter.access.key, filter.type, filter.prefix)
        mask = self._masks.get(key)
        if mask is None:
            mask = _judge_all(self.segment.columns.uris, filter)
            self._masks[key] = mask
            for old in [*self._masks][:-_MOST_MASKS]:  # other searches may do the same now
                self._masks.pop(old, None)
        return mask & self.current & self.segment.codes.have_direction


def _judge_all(uris: Sequence[str], filter: Filter) -> NDArray[np.bool_]:
    """Return whether each URI matches a filter. Access is checked last."""
    mask = np.ones(len(uris), np.bool_)
    if filter.type:
        start = f"{filter.type}."
        starts = (uri.rpartition("/")[2].startswith(start) for uri in uris)
        mask &= np.fromiter(starts, np.bool_, len(uris))
    if filter.prefix:
        below = (contains(filter.prefix, uri) for uri in uris)
        mask &= np.fromiter(below, np.bool_, len(uris))
    if filter.access is not FULL_ACCESS:
        rows = np.flatnonzero(mask)
        judged = filter.choose_questions([uris[row] for row in rows.tolist()])
        mask[rows] = filter.access.judge(judged)[: len(rows)]
    return mask


_MOST_LINES = 2000
_MOST_LINE_NUMBERS = 400_000
"""Maximum count of numbers in lines: 260 vectors of 1,536 dimensions."""
_MOST_BLOCK_NUMBERS = 50_000_000
"""Maximum count of numbers in a block: 250 MB, in memory while it is written."""
_FAN = 8
_SMALLEST_TIER = 256


@dataclass(frozen=True, slots=True)
class Line:
    """A row that is in no block yet."""

    row: Row
    position: int


@dataclass(frozen=True)
class TableState:
    """Blocks, and the lines that came after them.

    Nothing of it ever changes, so a search in a thread sees one moment, whatever is written or read
    meanwhile: methods return the state that follows.
    """

    blocks: Sequence[Block] = ()
    lines: Mapping[str, Line] = field(default_factory=dict[str, Line])
    removed: Mapping[str, None] = field(default_factory=dict[str, None])
    """URIs that lines remove from blocks or earlier lines."""
    line_count: int = 0
    """Number of lines of the object, including replaced ones."""
    number: int = 0
    """Number of the last block."""
    next_position: int = 0
    dimensions: int | None = None

    def __len__(self) -> int:
        return sum(block.count for block in self.blocks) + len(self.lines)

    def __contains__(self, uri: str) -> bool:
        return uri in self.lines or any(block.find(uri) is not None for block in self.blocks)

    @cached_property
    def search_blocks(self) -> Sequence[Block]:
        """The blocks, with the lines as one more block, which is built on first use."""
        return [*self.blocks, Block(self._join_lines())] if self.lines else self.blocks

    def find(self, uri: str) -> Identifier | None:
        """Return the identifier that was added under a URI."""
        if line := self.lines.get(uri):
            return line.row.identifier
        for block in self.blocks:
            if (row := block.find(uri)) is not None:
                return block.segment.identifier(row)
        return None

    def find_version(self, uri: str) -> str:
        """Return the resource version of a URI's vector; empty if there is none."""
        if line := self.lines.get(uri):
            return line.row.version
        for block in self.blocks:
            if (row := block.find(uri)) is not None:
                return block.segment.columns.versions[row]
        return ""

    def versions(self) -> dict[str, str]:
        """Return the resource version of each vector, by URI."""
        found: dict[str, str] = {}
        for block in self.blocks:
            columns = block.segment.columns
            rows = zip(columns.uris, columns.versions, block.current.tolist(), strict=True)
            found.update((uri, version) for uri, version, is_current in rows if is_current)
        return found | {uri: line.row.version for uri, line in self.lines.items()}

    def add_blocks(self, blocks: Sequence[Block]) -> "TableState":
        """Return the state with blocks appended in order."""
        stack = [*self.blocks, *blocks]
        later: set[str] = set()
        for number in range(len(stack) - 1, 0, -1):
            later.update(stack[number].row_numbers, stack[number].segment.removed)
            stack[number - 1] = stack[number - 1].without(later)
        filled = [block for block in blocks if len(block)]
        ends = [int(block.positions.max()) + 1 for block in filled]
        return replace(
            self,
            blocks=stack,
            next_position=max([self.next_position, *ends]),
            dimensions=filled[-1].segment.dimensions if filled else self.dimensions,
        )

    def add_lines(self, changes: Sequence[RowChange]) -> "TableState":
        """Return the state with lines appended.

        A row of a URI that has one takes its place, and keeps its position.
        """
        lines, removed, end = {**self.lines}, {**self.removed}, self.next_position
        uris = dict.fromkeys(uri for uri, _ in changes)
        positions = self._find_positions(uris.keys())
        dimensions = self.dimensions
        for uri, row in changes:
            if row is None:
                lines.pop(uri, None)
                positions.pop(uri, None)
                removed[uri] = None
                continue
            if uri not in positions:
                positions[uri], end = end, end + 1
            lines[uri] = Line(row, positions[uri])
            dimensions = dimensions or len(row.vector)
        return replace(
            self,
            blocks=[block.without(uris.keys()) for block in self.blocks],
            lines=lines,
            removed=removed,
            line_count=self.line_count + len(changes),
            next_position=end,
            dimensions=dimensions,
        )

    @property
    def has_too_many_lines(self) -> bool:
        """Whether the lines should be written as a block."""
        numbers = self.line_count * (self.dimensions or 1)
        return self.line_count > _MOST_LINES or (bool(self.lines) and numbers > _MOST_LINE_NUMBERS)

    def merge_lines(self) -> Segment:
        """Return the next block.

        It has all lines, and the rows of those blocks that it is time to join with them: the last
        ones once they are many, and those half dead.
        """
        blocks = self._choose_blocks()
        parts = [block.segment.take(np.flatnonzero(block.current)) for block in blocks]
        if self.lines:
            parts.append(self._join_lines())
        names = [block.name for block in blocks]
        return Segment.concat(parts, self._find_removals(blocks), names)

    def replace_lines(self, block: Block) -> "TableState":
        """Return the state in which a block replaces all lines and some earlier blocks."""
        others = [one for one in self.blocks if one.name not in block.segment.replaces]
        return replace(
            self,
            blocks=[*others, block],
            lines={},
            removed={},
            line_count=0,
            number=self.number + 1,
        )

    def _join_lines(self) -> Segment:
        lines = self.lines.values()
        return Segment.of([line.row for line in lines], [line.position for line in lines])

    def _find_positions(self, uris: Collection[str]) -> dict[str, int]:
        """Return the positions of the URIs with a row."""
        positions = {
            uri: int(block.positions[row])
            for block in self.blocks
            for uri, row in block.find_many(uris)
        }
        return positions | {uri: self.lines[uri].position for uri in self.lines.keys() & uris}

    def _choose_blocks(self) -> list[Block]:
        """Return the blocks to join with the lines."""
        rows = len(self.lines)
        most = count_block_rows(self.dimensions or 1)
        older, chosen = [*self.blocks], list[Block]()
        while True:
            count = 0
            while count < len(older) and _tier(len(older[-1 - count])) <= _tier(rows):
                count += 1
            run = older[len(older) - count :]
            rows += sum(map(len, run))
            if count + 1 < _FAN or rows > most:
                break
            del older[len(older) - count :]
            chosen = run + chosen
        return [block for block in older if block.is_half_dead] + chosen

    def _find_removals(self, merged: Sequence[Block]) -> list[str]:
        """Return the URIs with rows in remaining blocks that are all obsolete."""
        removed = {uri: None for block in merged for uri in block.segment.removed}
        removed |= self.removed
        others = [block for block in self.blocks if block not in merged]
        current = {uri for block in others for uri, _ in block.find_many(removed.keys())}
        dead = {uri for block in others for uri in block.row_numbers.keys() & removed.keys()}
        return [uri for uri in removed if uri in dead and uri not in current]


def count_block_rows(dimensions: int) -> int:
    """Return the maximum number of rows of a block for a vector length."""
    return max(1, _MOST_BLOCK_NUMBERS // dimensions)


def _tier(rows: int) -> int:
    """Return the size tier of a block: the logarithm of its rows to the base `_FAN`."""
    return max(0, (rows // _SMALLEST_TIER).bit_length() - 1) // (_FAN.bit_length() - 1)
