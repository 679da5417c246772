"""Read the options of the graph index from settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar

from copilot_runtime.base.errors import ConfigurationFailed, UnknownName
from copilot_runtime.base.jsonvalue import JsonValue
from copilot_runtime.extensions.knowledge.graph.ontology import OntologySettings
from copilot_runtime.extensions.knowledge.graph.sparql import SparqlLimits
from copilot_runtime.extensions.knowledge.graph.terms import Prefixes, make_iri

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
    """Where SPARQL is evaluated: in memory (400 bytes for each triple and each group of people who
    see the same), or in temporary files."""
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
