"""The ontology of a graph: its values, the options of the index, and SHACL shapes in Turtle."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar

import pyoxigraph

from copilot_runtime.base.errors import ConfigurationFailed, UnknownName
from copilot_runtime.base.jsonvalue import JsonValue
from copilot_runtime.extensions.knowledge.graph.sparql import SparqlLimits
from copilot_runtime.extensions.knowledge.graph.subjects import local_name
from copilot_runtime.extensions.knowledge.graph.terms import Prefixes, make_iri
from copilot_runtime.extensions.knowledge.rdf.terms import SCHEMA

ONE_WAY = frozenset(
    f"{SCHEMA}{name}"
    for name in ("citation", "mentions", "about", "isRelatedTo", "references", "sameAs", "url")
)
"""Predicates that have no inverse."""

Nodes = Literal["iri", "literal", "any"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OntologySettings:
    """Thresholds for inverse predicates and dominant classes."""

    min_inverse_ratio: float = 0.8
    """Minimum ratio between the numbers of links in the two directions."""
    max_inverse_ratio: float = 1.25
    min_mirrored: float = 0.5
    """Minimum fraction of the rarer links that must exist in the other direction; with 0, only the
    ratio counts, as in Copilot-LD."""
    one_way: frozenset[str] = ONE_WAY
    """IRIs of predicates that have no inverse."""
    dominance: float = 0.5
    """A class is dominant if more than this fraction of a property's objects have it."""

    def __post_init__(self) -> None:
        if not 0 < self.min_inverse_ratio <= 1 <= self.max_inverse_ratio:
            raise ConfigurationFailed(
                "The ratios of inverse predicates are two numbers around 1, such as 0.8 and 1.25."
            )
        if not 0 <= self.min_mirrored <= 1 or not 0 <= self.dominance < 1:
            raise ConfigurationFailed("min_mirrored and dominance are parts of one: from 0 to 1.")


@dataclass(frozen=True, slots=True, kw_only=True)
class OntologyProperty:
    """A property of a class: a predicate of its instances, or an inverse one."""

    path: str
    """The IRI of the predicate."""
    is_inverse: bool = False
    """Whether the instances are its objects; the values below are then its subjects."""
    instances: int
    """Number of instances with the property."""
    uses: int
    """Number of triples of the whole graph with the predicate."""
    min_count: int = 0
    """Minimum and maximum number of values of an instance."""
    max_count: int = 0
    nodes: Nodes = "any"
    datatypes: tuple[str, ...] = ()
    """Datatypes of the literals, the most frequent first; empty if malformed or too many."""
    classes: tuple[tuple[str, int], ...] = ()
    """Classes that together cover all values, each with its number of values, the most first.

    Empty if some of the values have no class, or for very many.
    """
    dominant: str = ""
    """The most frequent class of the values."""
    inverse: str = ""
    """The inverse predicate."""
    mirrors: str = ""
    """The predicate whose values are exactly those of this inverse path."""

    @property
    def name(self) -> str:
        """The last part of the path."""
        return local_name(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class OntologyClass:
    """A class with the properties of its instances."""

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
    """The classes of a graph, those with the most instances first."""

    classes: tuple[OntologyClass, ...] = ()
    triples: int = 0


SectionT = TypeVar("SectionT")

SparqlStore = Literal["memory", "disk"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOptions:
    """The options of the graph index."""

    prefixes: Mapping[str, str] = field(default_factory=dict[str, str])
    """Short names of namespaces, besides the built-in ones."""
    vocabulary: str = ""
    """Turtle in which classes have other names: `schema:Person skos:altLabel "Individual"`."""
    sparql_store: SparqlStore = "memory"
    """Store for SPARQL: memory (400 bytes per triple and per group of users with the same
    visibility), or temporary files."""
    sparql: SparqlLimits = field(default_factory=SparqlLimits)
    ontology: OntologySettings = field(default_factory=OntologySettings)


def read_options(options: Mapping[str, JsonValue], where: str = "graph") -> GraphOptions:
    """Read options; missing ones have defaults. Raises `ConfigurationFailed`."""
    values = dict(options)
    sections = {
        "sparql": _read_section(SparqlLimits, values.get("sparql"), f"{where}.sparql"),
        "ontology": _read_ontology(values.get("ontology"), f"{where}.ontology", _names(values)),
    }
    prefixes = _names(values)
    if values.get("sparql_store", "memory") not in ("memory", "disk"):
        raise ConfigurationFailed(f"{where}.sparql_store must be 'memory' or 'disk'.")
    return _read_section(GraphOptions, {**values, **sections, "prefixes": prefixes}, where)


def _names(values: Mapping[str, JsonValue]) -> dict[str, str]:
    prefixes = values.get("prefixes") or {}
    if not isinstance(prefixes, Mapping):
        raise ConfigurationFailed("The prefixes of a graph must be names with their namespaces.")
    return {str(name): str(namespace) for name, namespace in prefixes.items()}


def _read_ontology(value: JsonValue, where: str, prefixes: Mapping[str, str]) -> OntologySettings:
    """Read the settings of the ontology; predicates may have prefixes."""
    if isinstance(value, Mapping) and "one_way" in value:
        names: Any = value["one_way"]
        if not isinstance(names, list):
            raise ConfigurationFailed(f"{where}.one_way must be a list of predicates.")
        expand = Prefixes(prefixes).expand
        iris = frozenset(make_iri(expand(str(name)) or str(name)).value for name in names)
        value = {**value, "one_way": iris}
    return _read_section(OntologySettings, value, where)


def _read_section(section: type[SectionT], value: JsonValue, where: str) -> SectionT:
    """Build a section from a mapping, checked against the types of its defaults."""
    values: Any = {} if value is None else value
    if not isinstance(values, Mapping):
        raise ConfigurationFailed(f"{where} must be an object.")
    default: Any = section()
    names = [item.name for item in fields(default)]
    for name, item in values.items():
        if name not in names:
            raise UnknownName(f"option of {where}", str(name), names)
        if not _fits(item, getattr(default, name)):
            kind = type(getattr(default, name)).__name__
            raise ConfigurationFailed(f"{where}.{name} must be of the type {kind}, not {item!r}.")
    return section(**values)


def _fits(value: object, default: object) -> bool:
    """Return whether a value has the type of a default."""
    if isinstance(default, int | float):
        kinds = int if isinstance(default, int) else int | float
        return isinstance(value, kinds) and not isinstance(value, bool) and value >= 0
    return isinstance(value, type(default))


_ALWAYS = ("rdf", "rdfs", "sh", "dct", "schema", "foaf")
"""Prefixes that are always declared."""


def write_shapes(ontology: Ontology, prefixes: Prefixes) -> str:
    """Return a SHACL shape for each class, to which its instances conform."""
    shapes = "\n".join(_write_class(item, prefixes) for item in ontology.classes)
    names = [
        *_ALWAYS,
        *(name for name in prefixes if name not in _ALWAYS and f" {name}:" in shapes),
    ]
    header = "".join(f"@prefix {name}: <{prefixes[name]}>.\n" for name in names)
    return f"{header}\n{shapes}"


def _write_class(item: OntologyClass, prefixes: Prefixes) -> str:
    iri = prefixes.shorten(item.iri)
    name = item.name or item.iri
    statements = [
        f"{prefixes.shorten(f'{item.iri}Shape')} a sh:NodeShape",
        f"sh:targetClass {iri}",
        f"dct:source {iri}",
        f"dct:description {_text(f'Shape for {name} instances')}",
        f"sh:name {_text(name)}",
        *(f"skos:altLabel {_text(label)}" for label in item.labels),
        f"rdfs:comment {_text(f'Instances: {item.instances}')}",
    ]
    if item.properties:
        shapes = ", ".join(_write_property(part, prefixes) for part in item.properties)
        statements.append(f"sh:property {shapes}")
    return ";\n    ".join(statements) + ".\n"


def _write_property(item: OntologyProperty, prefixes: Prefixes) -> str:
    statements = ";\n  ".join(("a sh:PropertyShape", *_constraints(item, prefixes)))
    return f"[\n  {statements}\n]"


def _constraints(item: OntologyProperty, prefixes: Prefixes) -> Iterator[str]:
    path = prefixes.shorten(item.path)
    yield f"sh:path [ sh:inversePath {path} ]" if item.is_inverse else f"sh:path {path}"
    yield f"sh:name {_text(f'inverse of {item.name}' if item.is_inverse else item.name)}"
    yield f"rdfs:comment {_text(_describe(item, prefixes))}"
    if item.min_count:
        yield "sh:minCount 1"
    if item.max_count == 1:
        yield "sh:maxCount 1"
    if item.nodes == "iri":
        yield "sh:nodeKind sh:IRI"
        yield from _alternatives("sh:class", [name for name, _ in item.classes], prefixes)
    if item.nodes == "literal":
        yield "sh:nodeKind sh:Literal"
        yield from _alternatives("sh:datatype", [*item.datatypes], prefixes)
    if item.mirrors:
        yield f"sh:equals {prefixes.shorten(item.mirrors)}"


def _alternatives(constraint: str, names: list[str], prefixes: Prefixes) -> Iterator[str]:
    if len(names) == 1:
        yield f"{constraint} {prefixes.shorten(names[0])}"
    elif names:
        parts = " ".join(f"[ {constraint} {prefixes.shorten(name)} ]" for name in names)
        yield f"sh:or ( {parts} )"


def _describe(item: OntologyProperty, prefixes: Prefixes) -> str:
    parts = [f"Instances: {item.instances}"]
    if item.dominant and len(item.classes) != 1:
        parts.append(f"mostly {local_name(item.dominant)}")
    if item.inverse:
        parts.append(f"inverse: {prefixes.shorten(item.inverse)}")
    return ", ".join(parts)


def _text(text: str) -> str:
    return str(pyoxigraph.Literal(text))
