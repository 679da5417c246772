"""An ontology as SHACL shapes in Turtle."""

from collections.abc import Iterator

from pyoxigraph import Literal

from copilot_runtime.extensions.knowledge.graph.ontology import (
    Ontology,
    OntologyClass,
    OntologyProperty,
)
from copilot_runtime.extensions.knowledge.graph.subjects import local_name
from copilot_runtime.extensions.knowledge.graph.terms import Prefixes

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
    return str(Literal(text))
