"""Classes and properties that a graph has, by what its triples say.

It is derived from all triples at once, so that their order does not matter: first the types of
all subjects, then what they have.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from copilot_runtime.errors import ConfigurationFailed
from copilot_runtime.knowledge.graph.subjects import Labels, find_labels, local_name
from copilot_runtime.knowledge.graph.table import Numbers, Snapshot
from copilot_runtime.knowledge.graph.terms import RDF, RDF_TYPE, SCHEMA, XSD
from copilot_runtime.knowledge.graph.visibility import Visibility

Int64s = NDArray[np.int64]

ONE_WAY = frozenset(
    f"{SCHEMA}{name}"
    for name in ("citation", "mentions", "about", "isRelatedTo", "references", "sameAs", "url")
)
"""Predicates of which none says the same as another one in the other direction."""

STRING = f"{XSD}string"
LANGUAGE_STRING = f"{RDF}langString"

Nodes = Literal["iri", "literal", "any"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OntologySettings:
    """When two predicates are taken for inverses, and an object's class for dominant."""

    min_inverse_ratio: float = 0.8
    """Of the links in both directions: so many of one for each of the other, at least."""
    max_inverse_ratio: float = 1.25
    min_mirrored: float = 0.5
    """This part of the rarer links, at least, must be there in the other direction; with 0 it is
    enough that they are as frequent, as in Copilot-LD."""
    one_way: frozenset[str] = ONE_WAY
    """IRIs of predicates that have no inverse."""
    dominance: float = 0.5
    """A class that more than this part of a property's objects have is dominant."""

    def __post_init__(self) -> None:
        if not 0 < self.min_inverse_ratio <= 1 <= self.max_inverse_ratio:
            raise ConfigurationFailed(
                "The ratios of inverse predicates are two numbers around 1, such as 0.8 and 1.25."
            )
        if not 0 <= self.min_mirrored <= 1 or not 0 <= self.dominance < 1:
            raise ConfigurationFailed("min_mirrored and dominance are parts of one: from 0 to 1.")


@dataclass(frozen=True, slots=True, kw_only=True)
class OntologyProperty:
    """What instances of a class have under one predicate, or are under it."""

    path: str
    """The IRI of the predicate."""
    is_inverse: bool = False
    """Whether the instances are its objects: then what follows is about its subjects."""
    instances: int
    """How many instances have it."""
    uses: int
    """How many triples of the whole graph have the predicate."""
    min_count: int = 0
    """The fewest values that an instance has, and the most."""
    max_count: int = 0
    nodes: Nodes = "any"
    datatypes: tuple[str, ...] = ()
    """Of the literals, the most frequent first: empty if some of them are malformed."""
    classes: tuple[tuple[str, int], ...] = ()
    """Classes that together cover all values, each with its number of values, the most first.

    Empty if some of the values have no class.
    """
    dominant: str = ""
    """The class that most of the values with a class have."""
    inverse: str = ""
    """The predicate that says the same in the other direction."""
    mirrors: str = ""
    """The predicate whose values are exactly those of this inverse path."""

    @property
    def name(self) -> str:
        """The last part of the path."""
        return local_name(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class OntologyClass:
    """A class, and what its instances have."""

    iri: str
    instances: int
    labels: tuple[str, ...] = ()
    """Other names."""
    properties: tuple[OntologyProperty, ...] = ()

    @property
    def name(self) -> str:
        """The last part of its IRI."""
        return local_name(self.iri)


@dataclass(frozen=True, slots=True)
class Ontology:
    """What a graph is about: classes by how many instances they have."""

    classes: tuple[OntologyClass, ...] = ()
    triples: int = 0


def derive_ontology(
    snapshot: Snapshot,
    visibility: Visibility,
    settings: OntologySettings,
    vocabulary: Iterable[Sequence[str]],
) -> Ontology:
    """Return the ontology of what is visible of a graph."""
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
        is_type = (predicates == snapshot.number_of(f"<{RDF_TYPE}>")) & (kinds[objects] == 0)
        self._size = snapshot.term_count
        self._types = _Links(subjects[is_type], objects[is_type], self._size)
        rest = predicates != snapshot.number_of(f"<{RDF_TYPE}>")
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
        """Return the properties of each class: first those it has, then those it is in."""
        forward = np.arange(len(self._subjects))
        found: dict[int, list[OntologyProperty]] = {}
        for class_, predicate, triples in self._groups(self._subjects, forward):
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
        backward = np.flatnonzero(self._kinds == 0)
        for class_, inverse, triples in self._groups(self._objects, backward, paths.keys()):
            item = self._describe(
                class_, inverse, triples, self._objects, self._subjects, instances
            )
            same = self._are_mirrored(class_, paths[class_, inverse], triples)
            mirrors = self._iri(paths[class_, inverse]) if same else ""
            found.setdefault(class_, []).append(replace(item, is_inverse=True, mirrors=mirrors))
        return found

    def _groups(
        self,
        nodes: Int64s,
        triples: Int64s,
        only: "Iterable[tuple[int, int]] | None" = None,
    ) -> Iterable[tuple[int, int, Int64s]]:
        """Yield class, predicate and triples, for the classes of one end of triples."""
        if only is not None:
            only = {*only}
            predicates = np.asarray(sorted({predicate for _, predicate in only}), np.int64)
            triples = triples[np.isin(self._predicates[triples], predicates)]
        which, classes = self._types.expand(nodes[triples])
        members = triples[which]
        keys = classes * self._size + self._predicates[members]
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        for start, stop in _runs(keys[None, :]):
            class_, predicate = divmod(int(keys[start]), self._size)
            if only is None or (class_, predicate) in only:
                yield class_, predicate, members[order[start:stop]]

    def _describe(
        self,
        class_: int,
        predicate: int,
        triples: Int64s,
        nodes: Int64s,
        values: Int64s,
        instances: Mapping[int, int],
    ) -> OntologyProperty:
        """Return what instances of a class have, by all triples that they have it in."""
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
        """Return classes that cover values, if all have one, and the dominant one."""
        which, classes = self._types.expand(values)
        if not len(classes):
            return (), ""
        names, counts = np.unique(classes, return_counts=True)
        order = sorted(range(len(names)), key=lambda at: (-counts[at], self._iri(int(names[at]))))
        first = order[0]
        typed = len(np.unique(which))
        dominant = (
            self._iri(int(names[first])) if counts[first] > self._settings.dominance * typed else ""
        )
        cover: list[tuple[str, int]] = []
        open_values = np.ones(len(values), np.bool_)
        for at in order:
            members = which[classes == names[at]]
            if open_values[members].any():
                open_values[members] = False
                cover.append((self._iri(int(names[at])), int(counts[at])))
        return (() if open_values.any() else tuple(cover)), dominant

    def _datatypes_of(self, values: Int64s, kinds: Numbers) -> tuple[str, ...]:
        """Return the datatypes of literals, or nothing if one of them is not of its own."""
        numbers, counts = np.unique(kinds, return_counts=True)
        suffixes = [self._terms.suffixes[number] for number in numbers.tolist()]
        for number, suffix in zip(numbers.tolist(), suffixes, strict=True):
            pattern = _LEXICAL.get(suffix[3:-1].removeprefix(XSD))
            texts = self._terms.texts
            if pattern is not None and not all(
                _is_well_formed(texts[value][1 : -len(suffix) - 1], pattern)
                for value in np.unique(values[kinds == number]).tolist()
            ):
                return ()
        order = sorted(zip((-counts).tolist(), suffixes, strict=True))
        return tuple(dict.fromkeys(_datatype(suffix) for _, suffix in order))

    def _are_mirrored(self, class_: int, predicate: int, triples: Int64s) -> bool:
        """Return whether an inverse path has the same values as a predicate, for all of a class."""
        which, classes = self._types.expand(self._subjects)
        own = which[(classes == class_) & (self._predicates[which] == predicate)]
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
        links = np.flatnonzero(self._kinds == 0)
        which, ends = self._types.expand(self._objects[links])
        links = links[which]
        again, starts = self._types.expand(self._subjects[links])
        links, ends = links[again], ends[again]
        predicates = self._predicates[links]
        one_way = [
            number
            for iri in self._settings.one_way
            if (number := self._terms.number(f"<{iri}>")) is not None
        ]
        usable = ~np.isin(predicates, np.asarray(one_way, np.int64))
        links, ends, starts, predicates = (
            column[usable] for column in (links, ends, starts, predicates)
        )
        directions: dict[_Direction, Int64s] = {}
        order = np.lexsort((ends, predicates, starts))
        keys = np.stack([starts, predicates, ends])[:, order]
        for first, stop in _runs(keys):
            direction = (int(keys[0, first]), int(keys[1, first]), int(keys[2, first]))
            directions[direction] = links[order[first:stop]]
        return self._pair(directions)

    def _pair(self, directions: "Mapping[_Direction, Int64s]") -> "dict[_Direction, int]":
        """Find the partners, the strongest first."""
        by_classes: dict[tuple[int, int], list[_Direction]] = {}
        for direction in directions:
            by_classes.setdefault((direction[0], direction[2]), []).append(direction)
        candidates: list[tuple[tuple[object, ...], _Direction, _Direction]] = []
        for direction, links in directions.items():
            for other in by_classes.get((direction[2], direction[0]), ()):
                mirrored = self._mirror(links, directions[other])
                counts = len(links), len(directions[other])
                if self._may_be_inverses(direction, other, *counts, mirrored):
                    names = sorted((self._iri(direction[1]), self._iri(other[1])))
                    rank = (-mirrored, -min(counts), names[0], names[1])
                    candidates.append((rank, direction, other))
        candidates.sort(key=lambda item: (item[0], [self._iri(part) for part in item[1]]))
        partners: dict[int, int] = {}
        found: dict[_Direction, int] = {}
        for _, direction, other in candidates:
            one, two = direction[1], other[1]
            if partners.get(one, two) == two and partners.get(two, one) == one:
                partners[one], partners[two] = two, one
                found[direction] = two
        return found

    def _mirror(self, one: Int64s, other: Int64s) -> int:
        """Return how many links of one direction are there in the other."""
        forward = _pairs(self._subjects[one], self._objects[one], self._size)
        backward = _pairs(self._objects[other], self._subjects[other], self._size)
        return int(np.isin(forward, backward).sum())

    def _may_be_inverses(
        self, one: "_Direction", other: "_Direction", forward: int, backward: int, mirrored: int
    ) -> bool:
        low, high = self._settings.min_inverse_ratio, self._settings.max_inverse_ratio
        if one == other:  # it is as frequent as itself: that says nothing
            return mirrored >= low * forward
        is_balanced = all(
            low <= ratio <= high for ratio in (forward / backward, backward / forward)
        )
        return is_balanced and mirrored >= self._settings.min_mirrored * min(forward, backward)

    def _iri(self, number: int) -> str:
        return self._terms.texts[number][1:-1]

    def _number(self, iri: str) -> int:
        number = self._terms.number(f"<{iri}>") if iri else None
        return -1 if number is None else number


_Direction = tuple[int, int, int]
"""The class of the subjects, the predicate, and the class of the objects."""


class _Links:
    """From each node to any number of others."""

    def __init__(self, sources: Int64s, targets: Int64s, size: int) -> None:
        order = np.argsort(sources, kind="stable")
        self.targets = targets[order]
        self._starts = np.zeros(size + 1, np.int64)
        np.cumsum(np.bincount(sources, minlength=size), out=self._starts[1:])

    def expand(self, nodes: Int64s) -> tuple[Int64s, Int64s]:
        """Return the targets of nodes, and for each the place of its node among them."""
        counts = self._starts[nodes + 1] - self._starts[nodes]
        which = np.repeat(np.arange(len(nodes)), counts)
        first = np.repeat(self._starts[nodes] - (np.cumsum(counts) - counts), counts)
        return which, self.targets[first + np.arange(len(which))]


def _runs(keys: Int64s) -> Iterator[tuple[int, int]]:
    """Yield where columns begin and end to be equal."""
    if keys.shape[1]:
        changes = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
        ends = [*(np.flatnonzero(changes) + 1).tolist(), keys.shape[1]]
        yield from zip([0, *ends], ends, strict=False)


def _pairs(one: Int64s, two: Int64s, size: int) -> Int64s:
    return one * size + two


def _datatype(suffix: str) -> str:
    if not suffix:
        return STRING
    return LANGUAGE_STRING if suffix.startswith("@") else suffix[3:-1]


def _is_well_formed(text: str, pattern: re.Pattern[str]) -> bool:
    """Return whether a text is one of a datatype. Of dates and times, the calendar has a say."""
    if pattern.fullmatch(text) is None:
        return False
    try:
        if pattern in (_DATE, _DATE_TIME):
            datetime.fromisoformat(text[:19] if pattern is _DATE_TIME else text[:10])
        elif pattern is _TIME:
            time.fromisoformat(text[:8])
    except ValueError:
        return False
    return True


_ZONE = r"(?:Z|[+-]\d\d:\d\d)?"
_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)"
_DATE = re.compile(rf"\d{{4}}-\d\d-\d\d{_ZONE}", re.ASCII)
_TIME = re.compile(rf"\d\d:\d\d:\d\d(?:\.\d+)?{_ZONE}", re.ASCII)
_DATE_TIME = re.compile(rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?{_ZONE}", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_COUNT = re.compile(r"\+?\d+", re.ASCII)
_DOUBLE = re.compile(rf"{_NUMBER}(?:[eE][+-]?\d+)?|[+-]?INF|NaN", re.ASCII)
_DURATION = re.compile(
    r"-?P(?=.)(?:\d+Y)?(?:\d+M)?(?:\d+D)?(?:T(?=.)(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d+)?S)?)?",
    re.ASCII,
)

_LEXICAL = {
    **dict.fromkeys(("integer", "int", "long", "short", "byte"), _INTEGER),
    **dict.fromkeys(("nonNegativeInteger", "unsignedInt"), _COUNT),
    **dict.fromkeys(("double", "float"), _DOUBLE),
    "decimal": re.compile(_NUMBER, re.ASCII),
    "boolean": re.compile(r"true|false|0|1"),
    "date": _DATE,
    "dateTime": _DATE_TIME,
    "time": _TIME,
    "gYear": re.compile(rf"-?\d{{4,}}{_ZONE}", re.ASCII),
    "gYearMonth": re.compile(rf"-?\d{{4,}}-(?:0[1-9]|1[0-2]){_ZONE}", re.ASCII),
    "duration": _DURATION,
}
"""How the texts of datatypes of XML Schema look; those of others are not checked."""
