"""The table of triples by resource: columns of term numbers, with an index for each column.

pyoxigraph stores a triple of a hundred graphs a hundred times, in no stable order; this table
keeps the order of the resources, checks access only for candidate rows, and scans a
million triples per second.
"""

import threading
from array import array
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from copilot_runtime.extensions.knowledge.access import FULL_ACCESS, Access
from copilot_runtime.extensions.knowledge.graph.terms import TermQuery, TermTable
from copilot_runtime.extensions.knowledge.identifiers import Identifier

Numbers: TypeAlias = NDArray[np.int32]
Mask: TypeAlias = NDArray[np.bool_]

_FIRST_ROWS = 1024
_MOST_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class Holder:
    """A resource, and its triples."""

    identifier: Identifier
    version: str
    rows: bytes = b""
    """Numbers of subject, predicate and object, of one triple after the other."""
    error: str = ""
    """The reason why its content could not be parsed; empty if it was."""

    @property
    def count(self) -> int:
        """Number of triples."""
        return len(self.rows) // 12


class TripleTable:
    """Holders of triples by URI, in the order in which they first came.

    What has no triples is remembered apart, so that a thousand texts leave the rows as they are.
    One writer at a time changes it; `snapshot` may be called from any thread meanwhile.
    """

    def __init__(self) -> None:
        self.terms = TermTable()
        self.holders: dict[str, Holder] = {}
        """Resources with triples."""
        self._empty: dict[str, Holder] = {}
        self._snapshot: Snapshot | None = None
        self._lock = threading.Lock()
        self.generation = 0
        """A number that changes with every change of triples or their holders."""

    def __len__(self) -> int:
        return len(self.holders) + len(self._empty)

    def get(self, uri: str) -> Holder | None:
        """Return a resource, with or without triples; `None` if it is not indexed."""
        return self.holders.get(uri) or self._empty.get(uri)

    def all_holders(self) -> list[Holder]:
        """Return all resources: those with triples in their order, then those without."""
        return [*self.holders.values(), *self._empty.values()]

    def versions(self) -> dict[str, str]:
        """Return the versions of all resources by URI."""
        every = (self.holders, self._empty)
        return {uri: holder.version for holders in every for uri, holder in holders.items()}

    def put(self, uri: str, holder: Holder) -> None:
        """Add a resource, or replace its older version in place."""
        with self._lock:
            self.generation += self.changes_with(uri, holder)
            into, other = self.holders, self._empty
            if not holder.rows:
                into, other = other, into
            into[uri] = holder
            other.pop(uri, None)

    def remove(self, uri: str) -> None:
        """Remove a resource."""
        with self._lock:
            if self.holders.pop(uri, None) is not None:
                self.generation += 1
            self._empty.pop(uri, None)

    def replace(self, other: "TripleTable") -> None:
        """Replace the contents with those of another table."""
        with self._lock:
            self.terms, self.holders, self._empty = other.terms, other.holders, other._empty
            self.generation += 1

    def changes_with(self, uri: str, holder: Holder | None) -> bool:
        """Return whether putting a holder would change triples or its identifier."""
        old = self.holders.get(uri)
        if old is None or holder is None:
            return old is not None or (holder is not None and holder.rows != b"")
        one, two = old.identifier, holder.identifier
        return (old.rows, one.tokens, one.subjects) != (holder.rows, two.tokens, two.subjects)

    def encode(self, triples: Iterable[Sequence[str]]) -> bytes:
        """Return triples as rows. Each is three texts of N-Triples."""
        add = self.terms.add
        return array("i", [add(term) for triple in triples for term in triple]).tobytes()

    def decode(self, rows: bytes) -> Iterator[str]:
        """Yield rows as lines of N-Triples."""
        texts = self.terms.texts
        numbers = iter(array("i", rows))
        for subject, predicate, object in zip(numbers, numbers, numbers, strict=True):
            yield f"{texts[subject]} {texts[predicate]} {texts[object]} ."

    @property
    def is_sorted(self) -> bool:
        """Whether the current snapshot is already built."""
        return self._snapshot is not None and self._snapshot.generation == self.generation

    def snapshot(self) -> "Snapshot":
        """Return an immutable snapshot of the table."""
        with self._lock:
            snapshot = self._snapshot
            if snapshot is not None and snapshot.generation == self.generation:
                return snapshot
            terms, holders, generation = self.terms, {**self.holders}, self.generation
        snapshot = Snapshot(terms, holders, generation)
        self._snapshot = snapshot
        return snapshot


class Snapshot:
    """Rows in the order of their holders. Safe to read in any thread."""

    def __init__(self, terms: TermTable, holders: dict[str, Holder], generation: int) -> None:
        self.terms = terms
        self.generation = generation
        self.uris = [*holders]
        self.identifiers = [holder.identifier for holder in holders.values()]
        rows = b"".join(holder.rows for holder in holders.values())
        columns = np.frombuffer(rows, np.int32).reshape(-1, 3)
        self.columns: tuple[Numbers, Numbers, Numbers] = (
            np.ascontiguousarray(columns[:, 0]),
            np.ascontiguousarray(columns[:, 1]),
            np.ascontiguousarray(columns[:, 2]),
        )
        counts = np.fromiter((holder.count for holder in holders.values()), np.int64, len(holders))
        self.holders: Numbers = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        self._postings = [_Postings(column, len(terms)) for column in self.columns]

    def __len__(self) -> int:
        return len(self.holders)

    @property
    def term_count(self) -> int:
        """Number of terms at the time of the snapshot."""
        return self._postings[0].size

    @cached_property
    def holders_with_rows(self) -> Numbers:
        """The numbers of the holders that have triples: all of them."""
        return np.arange(len(self.uris), dtype=np.int32)

    def number_of(self, text: str) -> int:
        """Return the number of a term, or -1 if it is not in the snapshot."""
        number = self.terms.number(text)
        return -1 if number is None or number >= self.term_count else number

    def match(self, queries: Sequence[TermQuery | None]) -> "Matches":
        """Return the rows that match a pattern."""
        choices = [None if query is None else self.terms.find(query) for query in queries]
        return Matches(self, choices)

    def lines(self, rows: Numbers) -> Iterator[str]:
        """Yield rows as lines of N-Triples."""
        texts = self.terms.texts
        columns = (column[rows].tolist() for column in self.columns)
        for subject, predicate, object in zip(*columns, strict=True):
            yield f"{texts[subject]} {texts[predicate]} {texts[object]} ."

    def distinct_rows(self, rows: Numbers) -> Numbers:
        """Return the first row of each triple, in order."""
        subjects, predicates, objects = (column[rows] for column in self.columns)
        order = np.lexsort((objects, predicates, subjects))
        is_first = np.ones(len(order), np.bool_)
        if len(order):
            is_first[1:] = False
            for column in (subjects, predicates, objects):
                values = column[order]
                is_first[1:] |= values[1:] != values[:-1]
        return rows[np.sort(order[is_first])]

    def candidates(self, choices: Sequence[list[int] | None]) -> tuple[int, Numbers | None]:
        """Return the most selective column of a pattern and its rows; `None` for all rows."""
        best, fewest = -1, len(self) + 1
        for column, numbers in enumerate(choices):
            if numbers is not None:
                count = self._postings[column].count(numbers)
                if count < fewest:
                    best, fewest = column, count
        return best, None if best < 0 else self._postings[best].rows(choices[best] or [])


class Matches:
    """The rows of a snapshot that match a pattern, computed in chunks."""

    def __init__(self, snapshot: Snapshot, choices: Sequence[list[int] | None]) -> None:
        self._snapshot = snapshot
        best, self._candidates = snapshot.candidates(choices)
        self._checks = [
            (snapshot.columns[column], np.asarray(numbers, np.int32))
            for column, numbers in enumerate(choices)
            if numbers is not None and column != best
        ]
        self.most = len(snapshot) if self._candidates is None else len(self._candidates)
        """Upper bound of the number of rows."""

    def __iter__(self) -> Iterator[Numbers]:
        """Yield rows in order, in pieces that grow."""
        start, size = 0, _FIRST_ROWS
        while start < self.most:
            stop = min(start + size, self.most)
            if self._candidates is None:
                rows = np.arange(start, stop, dtype=np.int32)
            else:
                rows = self._candidates[start:stop]
            for column, numbers in self._checks:
                values = column[rows]
                rows = rows[values == numbers[0] if len(numbers) == 1 else np.isin(values, numbers)]
            if len(rows):
                yield rows
            start, size = stop, min(size * 4, _MOST_ROWS)


class _Postings:
    """The rows of each term of one column, in order."""

    def __init__(self, column: Numbers, size: int) -> None:
        self.size = size
        self._order: Numbers = np.argsort(column, kind="stable").astype(np.int32)
        counts = np.bincount(column, minlength=size)
        self._starts = np.zeros(size + 1, np.int64)
        np.cumsum(counts, out=self._starts[1:])

    def count(self, numbers: Iterable[int]) -> int:
        """Return the number of rows with any of the terms."""
        starts = self._starts
        return sum(int(starts[n + 1] - starts[n]) for n in numbers if n < self.size)

    def rows(self, numbers: Sequence[int]) -> Numbers:
        """Return the rows with any of the terms, in order."""
        pieces = [
            self._order[self._starts[n] : self._starts[n + 1]] for n in numbers if n < self.size
        ]
        if len(pieces) == 1:
            return pieces[0]
        return np.sort(np.concatenate(pieces)) if pieces else np.zeros(0, np.int32)


_MOST_MASKS = 256


class Visibility:
    """The holders of a snapshot that an access allows, each judged once on first use."""

    def __init__(self, snapshot: Snapshot, access: Access) -> None:
        self.is_full = access is FULL_ACCESS
        self._snapshot = snapshot
        self._access = access
        size = 0 if self.is_full else len(snapshot.uris)
        self._judged: Mask = np.zeros(size, np.bool_)
        self._allowed: Mask = np.zeros(size, np.bool_)

    def rows(self, rows: Numbers) -> Numbers:
        """Return the rows whose holders are allowed."""
        if self.is_full:
            return rows
        return rows[self.holders(self._snapshot.holders[rows])]

    def holders(self, numbers: Numbers) -> Mask:
        """Return a mask of the allowed holders."""
        if self.is_full:
            return np.ones(len(numbers), np.bool_)
        unknown = np.unique(numbers[~self._judged[numbers]])
        if len(unknown):
            uris = self._snapshot.uris
            self._allowed[unknown] = self._access.judge([uris[number] for number in unknown])
            self._judged[unknown] = True
        return self._allowed[numbers]

    def all_rows(self) -> Numbers:
        """Return the numbers of all rows whose holders are allowed."""
        return self.rows(np.arange(len(self._snapshot), dtype=np.int32))

    @property
    def key(self) -> tuple[int, Hashable]:
        """The generation, and a key shared by all accesses with the same visible part."""
        if self.is_full:
            return self._snapshot.generation, True
        mask = self.holders(self._snapshot.holders_with_rows)
        if mask.all():
            return self._snapshot.generation, True
        return self._snapshot.generation, mask.tobytes()


class VisibilityCache:
    """A cache of the visibilities of the most recent accesses, for the newest snapshot."""

    def __init__(self) -> None:
        self._generation = 0
        self._entries: OrderedDict[Hashable, Visibility] = OrderedDict()
        self._lock = Lock()

    def get(self, snapshot: Snapshot, access: Access) -> Visibility:
        """Return the visibility of an access."""
        key = access.key  # an engine that fails at this moment has another one right after it
        with self._lock:
            if snapshot.generation < self._generation:
                return Visibility(snapshot, access)
            if snapshot.generation != self._generation:
                self._entries.clear()
                self._generation = snapshot.generation
            visibility = self._entries.setdefault(key, Visibility(snapshot, access))
            self._entries.move_to_end(key)
            if len(self._entries) > _MOST_MASKS:
                self._entries.popitem(last=False)
            return visibility
