"""Derive the ontology of a graph: its classes and their properties.

It is derived from all triples at once, so that their order does not matter: first the types of
all subjects, then what they have.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from copilot_runtime.extensions.knowledge.graph.ontology import (
    Nodes,
    Ontology,
    OntologyClass,
    OntologyProperty,
    OntologySettings,
)
from copilot_runtime.extensions.knowledge.graph.subjects import Labels, find_labels
from copilot_runtime.extensions.knowledge.graph.table import Mask, Numbers, Snapshot, Visibility
from copilot_runtime.extensions.knowledge.rdf.terms import (
    LEXICAL_FORMS,
    RDF,
    RDF_TYPE,
    XSD,
    is_well_formed,
)

Int64s = NDArray[np.int64]

STRING = f"{XSD}string"
LANGUAGE_STRING = f"{RDF}langString"

_MOST_TYPES = 32
"""Maximum number of classes of a thing; one with more counts as untyped."""
_MOST_PROPERTIES = 10_000
"""Maximum number of properties of all classes; the rarest are left out."""
_MOST_ALTERNATIVES = 32
"""Maximum number of classes or datatypes of a property; with more it is unrestricted."""
_MOST_CANDIDATES = 200
"""Maximum number of predicates between two classes compared as inverses, the most frequent."""
_MOST_CLASS_LINKS = 8_000_000
"""Maximum number of links examined for inverses, counted per pair of classes of their ends."""
_MOST_SHARED_LINKS = 4_000_000
"""Maximum number of pairs of these links and links in the other direction."""
_MOST_PAIRS = 20_000
"""Maximum number of pairs of predicates that may be inverses."""


def derive_ontology(
    snapshot: Snapshot,
    visibility: Visibility,
    settings: OntologySettings,
    vocabulary: Iterable[Sequence[str]],
) -> Ontology:
    """Return the ontology of the visible part of a graph."""
    rows = snapshot.distinct_rows(visibility.all_rows())
    labels = find_labels(snapshot, visibility, vocabulary)
    return _Derivation(snapshot, rows, settings, labels).ontology()


class _Derivation:
    """One pass through the types of all subjects, and one through everything else."""

    def __init__(
        self, snapshot: Snapshot, rows: Numbers, settings: OntologySettings, labels: Labels
    ) -> None:
        self._terms = snapshot.terms
        self._settings = settings
        self._labels = labels
        self._triple_count = len(rows)
        kinds = np.frombuffer(self._terms.kinds[: snapshot.term_count], np.int32)
        subjects, predicates, objects = (
            column[rows].astype(np.int64) for column in snapshot.columns
        )
        is_type = (predicates == snapshot.number_of(str(RDF_TYPE))) & (kinds[objects] == 0)
        self._size = snapshot.term_count
        self._types = _find_types(subjects[is_type], objects[is_type], self._size)
        rest = predicates != snapshot.number_of(str(RDF_TYPE))
        self._subjects = subjects[rest]
        self._predicates = predicates[rest]
        self._objects = objects[rest]
        self._kinds = kinds[self._objects]
        self._uses = np.bincount(self._predicates, minlength=self._size)

    def ontology(self) -> Ontology:
        """Return all classes."""
        classes, counts = np.unique(self._types.targets, return_counts=True)
        instances = {int(c): int(n) for c, n in zip(classes, counts, strict=True)}
        inverses = self._find_inverses()
        properties = self._find_properties(instances, inverses)
        found = [
            OntologyClass(
                iri=self._iri(class_),
                instances=count,
                labels=tuple(sorted(self._labels.get(self._iri(class_), ()))),
                properties=tuple(
                    sorted(
                        properties.get(class_, ()),
                        key=lambda item: (item.is_inverse, -item.instances, -item.uses, item.path),
                    )
                ),
            )
            for class_, count in instances.items()
        ]
        found.sort(key=lambda item: (-item.instances, item.iri))
        return Ontology(tuple(found), self._triple_count)

    def _find_properties(
        self, instances: Mapping[int, int], inverses: "Mapping[_Direction, int]"
    ) -> dict[int, list[OntologyProperty]]:
        """Return the properties of each class, the inverse ones last."""
        found: dict[int, list[OntologyProperty]] = {}
        forward = self._group(self._subjects, np.arange(len(self._subjects)))
        for (class_, predicate), triples in forward.items():
            item = self._describe(
                class_, predicate, triples, self._subjects, self._objects, instances
            )
            inverse = inverses.get((class_, predicate, self._number(item.dominant)), -1)
            if inverse >= 0:
                item = replace(item, inverse=self._iri(inverse))
            found.setdefault(class_, []).append(item)
        paths = {
            (class_, inverse): predicate for (class_, predicate, _), inverse in inverses.items()
        }
        predicates = np.asarray(sorted({inverse for _, inverse in paths}), np.int64)
        links = np.flatnonzero((self._kinds == 0) & np.isin(self._predicates, predicates))
        for (class_, inverse), triples in self._group(self._objects, links).items():
            predicate = paths.get((class_, inverse))
            if predicate is None:
                continue
            item = self._describe(
                class_, inverse, triples, self._objects, self._subjects, instances
            )
            same = self._are_mirrored(forward.get((class_, predicate)), triples)
            mirrors = self._iri(predicate) if same else ""
            found.setdefault(class_, []).append(replace(item, is_inverse=True, mirrors=mirrors))
        return found

    def _group(self, nodes: Int64s, triples: Int64s) -> dict[tuple[int, int], Int64s]:
        """Group triples by predicate and by the classes of the given nodes."""
        which, classes = self._types.expand(nodes[triples])
        members = triples[which]
        keys = classes * self._size + self._predicates[members]
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        runs = [*_runs(keys)]
        if len(runs) > _MOST_PROPERTIES:
            runs.sort(key=lambda run: (run[0] - run[1], *self._names(int(keys[run[0]]))))
            runs = sorted(runs[:_MOST_PROPERTIES])
        return {
            divmod(int(keys[start]), self._size): members[order[start:stop]] for start, stop in runs
        }

    def _names(self, key: int) -> tuple[str, str]:
        class_, predicate = divmod(key, self._size)
        return self._iri(class_), self._iri(predicate)

    def _describe(
        self,
        class_: int,
        predicate: int,
        triples: Int64s,
        nodes: Int64s,
        values: Int64s,
        instances: Mapping[int, int],
    ) -> OntologyProperty:
        """Return one property of a class, from the triples of its instances."""
        _, counts = np.unique(nodes[triples], return_counts=True)
        kinds = (
            self._kinds[triples] if values is self._objects else np.zeros(len(triples), np.int32)
        )
        is_literal, is_iri = kinds > 0, kinds == 0
        classes, dominant = self._classes_of(values[triples][is_iri])
        nodes_kind: Nodes = "any"
        if is_iri.all():
            nodes_kind = "iri"
        elif is_literal.all():
            nodes_kind = "literal"
        return OntologyProperty(
            path=self._iri(predicate),
            instances=len(counts),
            uses=int(self._uses[predicate]),
            min_count=int(counts.min()) if len(counts) == instances[class_] else 0,
            max_count=int(counts.max()),
            nodes=nodes_kind,
            datatypes=self._datatypes_of(values[triples][is_literal], kinds[is_literal]),
            classes=classes if nodes_kind == "iri" else (),
            dominant=dominant,
        )

    def _classes_of(self, values: Int64s) -> tuple[tuple[tuple[str, int], ...], str]:
        """Return the classes that cover all values, if each has one, and the dominant class."""
        which, classes = self._types.expand(values)
        if not len(classes):
            return (), ""
        order = np.argsort(classes, kind="stable")
        classes, members = classes[order], which[order]
        groups = [
            (start - stop, self._iri(int(classes[start])), members[start:stop])
            for start, stop in _runs(classes)
        ]
        groups.sort(key=lambda group: group[:2])
        typed = len(np.unique(which))
        dominant = groups[0][1] if -groups[0][0] > self._settings.dominance * typed else ""
        if typed < len(values):
            return (), dominant
        cover: list[tuple[str, int]] = []
        is_open = np.ones(len(values), np.bool_)
        for count, name, things in groups:
            if is_open[things].any():
                is_open[things] = False
                cover.append((name, -count))
            if len(cover) > _MOST_ALTERNATIVES:
                return (), dominant
        return tuple(cover), dominant

    def _datatypes_of(self, values: Int64s, kinds: Numbers) -> tuple[str, ...]:
        """Return the datatypes of literals; empty if too many, or if a literal is malformed."""
        numbers, counts = np.unique(kinds, return_counts=True)
        suffixes = [self._terms.suffixes[number] for number in numbers.tolist()]
        for number, suffix in zip(numbers.tolist(), suffixes, strict=True):
            datatype, texts = suffix[3:-1], self._terms.texts
            if datatype in LEXICAL_FORMS and not all(
                is_well_formed(texts[value][1 : -len(suffix) - 1], datatype)
                for value in np.unique(values[kinds == number]).tolist()
            ):
                return ()
        order = sorted(zip((-counts).tolist(), suffixes, strict=True))
        names = dict.fromkeys(_datatype(suffix) for _, suffix in order)
        return tuple(names) if len(names) <= _MOST_ALTERNATIVES else ()

    def _are_mirrored(self, own: Int64s | None, triples: Int64s) -> bool:
        """Return whether an inverse path has the same values as a predicate, for all of a class."""
        if own is None:
            return False
        forward = _pairs(self._subjects[own], self._objects[own], self._size)
        backward = _pairs(self._objects[triples], self._subjects[triples], self._size)
        return bool(
            (self._kinds[own] == 0).all()
            and np.array_equal(np.unique(forward), np.unique(backward))
        )

    def _find_inverses(self) -> "dict[_Direction, int]":
        """Return for (class, predicate, class of objects) the predicate of the other direction.

        As often, by the ratios of the settings, and mostly between the same things; each
        predicate has one partner, which may be itself.
        """
        links, starts, ends = self._find_class_links()
        which, first = _number_rows(starts, ends, self._predicates[links])
        directions: list[_Direction] = [
            *zip(
                *(column[first].tolist() for column in (starts, self._predicates[links], ends)),
                strict=True,
            )
        ]
        counts = np.bincount(which, minlength=len(directions))
        usable = self._choose_candidates(directions, counts)
        one, other, shared = self._count_shared(links, starts, ends, which, usable)
        if not self._settings.min_mirrored:
            one, other, shared = _add_pairs(directions, usable, one, other, shared)
        chosen = np.flatnonzero(self._may_be_inverses(one, other, counts, shared))
        fewest = np.minimum(counts[one], counts[other])
        chosen = chosen[np.lexsort((-fewest[chosen], -shared[chosen]))][:_MOST_PAIRS]
        pairs = (column[chosen].tolist() for column in (one, other, shared, fewest))
        return self._match(directions, zip(*pairs, strict=True))

    def _match(
        self, directions: "Sequence[_Direction]", pairs: Iterable[tuple[int, int, int, int]]
    ) -> "dict[_Direction, int]":
        """Choose partners, those with the most links in common first."""
        candidates: list[tuple[tuple[object, ...], _Direction, int]] = []
        for one, other, shared, fewest in pairs:
            iris = [self._iri(part) for part in directions[one]]
            names = sorted((iris[1], self._iri(directions[other][1])))
            candidates.append(
                ((-shared, -fewest, names, iris), directions[one], directions[other][1])
            )
        candidates.sort()
        partners: dict[int, int] = {}
        found: dict[_Direction, int] = {}
        for _, direction, other in candidates:
            own = direction[1]
            if partners.get(own, other) == other and partners.get(other, own) == own:
                partners[own], partners[other] = other, own
                found[direction] = other
        return found

    def _find_class_links(self) -> tuple[Int64s, Int64s, Int64s]:
        """Return links between things, once for each class of subject and object, with these."""
        one_way = [self._number(iri) for iri in self._settings.one_way]
        links = np.flatnonzero(
            (self._kinds == 0) & ~np.isin(self._predicates, np.asarray(one_way, np.int64))
        )
        sizes = self._types.count(self._subjects[links]) * self._types.count(self._objects[links])
        links = links[_find_small(sizes, _MOST_CLASS_LINKS)]
        which, ends = self._types.expand(self._objects[links])
        links = links[which]
        which, starts = self._types.expand(self._subjects[links])
        return links[which], starts, ends[which]

    def _choose_candidates(self, directions: "Sequence[_Direction]", counts: Int64s) -> Mask:
        """Return which directions are among the most frequent ones between their classes."""
        usable = np.ones(len(directions), np.bool_)
        by_classes: dict[tuple[int, int], list[int]] = {}
        for number, (start, _, end) in enumerate(directions):
            by_classes.setdefault((start, end), []).append(number)
        for numbers in by_classes.values():
            if len(numbers) > _MOST_CANDIDATES:
                numbers.sort(key=lambda at: (-int(counts[at]), self._iri(directions[at][1])))
                usable[numbers[_MOST_CANDIDATES:]] = False
        return usable

    def _count_shared(
        self, links: Int64s, starts: Int64s, ends: Int64s, directions: Int64s, usable: Mask
    ) -> tuple[Int64s, Int64s, Int64s]:
        """Return pairs of directions, and the number of links that they share."""
        pairs = _pairs(self._subjects[links], self._objects[links], self._size)
        back = _pairs(self._objects[links], self._subjects[links], self._size)
        chosen = usable[directions]
        chosen &= np.isin(pairs, back[chosen])
        pairs, back, starts, ends = (column[chosen] for column in (pairs, back, starts, ends))
        directions = directions[chosen]
        keys, _ = _number_rows(
            np.concatenate([pairs, back]),
            np.concatenate([starts, ends]),
            np.concatenate([ends, starts]),
        )
        forward, backward = keys[: len(pairs)], keys[len(pairs) :]
        others = _Links(backward, directions, 2 * len(pairs))
        few = _find_small(others.count(forward), _MOST_SHARED_LINKS)
        which, targets = others.expand(forward[few])
        size = max(1, len(usable))
        both, shared = np.unique(_pairs(directions[few][which], targets, size), return_counts=True)
        return both // size, both % size, shared

    def _may_be_inverses(self, one: Int64s, other: Int64s, counts: Int64s, shared: Int64s) -> Mask:
        low, high = self._settings.min_inverse_ratio, self._settings.max_inverse_ratio
        forward, backward = counts[one], counts[other]
        ratio = forward / backward
        is_balanced = (low <= ratio) & (ratio <= high) & (low <= 1 / ratio) & (1 / ratio <= high)
        enough = shared >= self._settings.min_mirrored * np.minimum(forward, backward)
        # for a predicate with itself, the ratio is always 1
        return np.where(one == other, shared >= low * forward, is_balanced & enough)

    def _iri(self, number: int) -> str:
        return self._terms.texts[number][1:-1]

    def _number(self, iri: str) -> int:
        number = self._terms.number(f"<{iri}>") if iri else None
        return -1 if number is None else number


_Direction = tuple[int, int, int]
"""The class of the subjects, the predicate, and the class of the objects."""


class _Links:
    """A mapping of each node to any number of targets."""

    def __init__(self, sources: Int64s, targets: Int64s, size: int) -> None:
        order = np.argsort(sources, kind="stable")
        self.targets = targets[order]
        self._starts = np.zeros(size + 1, np.int64)
        np.cumsum(np.bincount(sources, minlength=size), out=self._starts[1:])

    def count(self, nodes: Int64s) -> Int64s:
        """Return the number of targets of each node."""
        return self._starts[nodes + 1] - self._starts[nodes]

    def expand(self, nodes: Int64s) -> tuple[Int64s, Int64s]:
        """Return the targets of nodes, and the position of the source node of each."""
        counts = self.count(nodes)
        which = np.repeat(np.arange(len(nodes)), counts)
        first = np.repeat(self._starts[nodes] - (np.cumsum(counts) - counts), counts)
        return which, self.targets[first + np.arange(len(which))]


def _find_types(subjects: Int64s, classes: Int64s, size: int) -> _Links:
    """Return the classes of each subject; a subject with too many has none."""
    few = np.bincount(subjects, minlength=size) <= _MOST_TYPES
    return _Links(subjects[few[subjects]], classes[few[subjects]], size)


def _add_pairs(
    directions: "Sequence[_Direction]", usable: Mask, *pairs: Int64s
) -> tuple[Int64s, Int64s, Int64s]:
    """Return pairs of directions with those that share no link."""
    by_classes: dict[tuple[int, int], list[int]] = {}
    for number in np.flatnonzero(usable).tolist():
        start, _, end = directions[number]
        by_classes.setdefault((start, end), []).append(number)
    counts = {(one, other): shared for one, other, shared in zip(*map(list, pairs), strict=True)}
    every = {
        (one, other): counts.get((one, other), 0)
        for (start, end), numbers in by_classes.items()
        for one in numbers
        for other in by_classes.get((end, start), ())
    }
    rows = np.asarray([(*pair, shared) for pair, shared in every.items()], np.int64).reshape(-1, 3)
    return rows[:, 0], rows[:, 1], rows[:, 2]


def _find_small(sizes: Int64s, most: int) -> Mask:
    """Return a mask of the smallest sizes whose sum does not exceed `most`.

    Things with many classes or links would multiply the work.
    """
    in_order = np.sort(sizes)
    beyond = np.flatnonzero(np.cumsum(in_order) > most)
    return sizes < in_order[beyond[0]] if len(beyond) else np.ones(len(sizes), np.bool_)


def _number_rows(*columns: Int64s) -> tuple[Int64s, Int64s]:
    """Return the number of each row among the different ones, and where each of these is first."""
    order = np.lexsort(columns)
    is_first = np.ones(len(order), np.bool_)
    if len(order):
        is_first[1:] = False
        for column in columns:
            values = column[order]
            is_first[1:] |= values[1:] != values[:-1]
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(is_first) - 1
    return numbers, order[is_first]


def _runs(keys: Int64s) -> Iterator[tuple[int, int]]:
    """Yield start and end of each run of equal values in sorted keys."""
    if len(keys):
        ends = [*(np.flatnonzero(keys[1:] != keys[:-1]) + 1).tolist(), len(keys)]
        yield from zip([0, *ends], ends, strict=False)


def _pairs(one: Int64s, two: Int64s, size: int) -> Int64s:
    return one * size + two


def _datatype(suffix: str) -> str:
    if not suffix:
        return STRING
    return LANGUAGE_STRING if suffix.startswith("@") else suffix[3:-1]
