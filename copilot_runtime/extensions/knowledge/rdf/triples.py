"""Write triples as Turtle and N-Quads, and read what resources hold."""

import re
from collections.abc import Iterable

from pyoxigraph import Literal, NamedNode, RdfFormat, Triple, parse

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.knowledge.namespaces import RDF_TYPE, XSD

_FORMATS = {
    "turtle": RdfFormat.TURTLE,
    "nquads": RdfFormat.N_QUADS,
    "jsonld": RdfFormat.JSON_LD,
}
_BARE = {
    f"{XSD}boolean": re.compile(r"true|false"),
    f"{XSD}integer": re.compile(r"[+-]?\d+", re.ASCII),
    f"{XSD}decimal": re.compile(r"[+-]?\d*\.\d+", re.ASCII),
    f"{XSD}double": re.compile(r"[+-]?(?:\d+\.\d*|\.?\d+)[eE][+-]?\d+", re.ASCII),
}
"""Lexical forms that Turtle accepts without quotation marks."""


def write_turtle(triples: Iterable[Triple]) -> str:
    """Return triples as Turtle without prefixes, types first, in the layout of Copilot-LD."""
    pieces: list[str] = []
    last: Triple | None = None
    for triple in order_types_first(triples):
        value = _write_term(triple.object)
        if last and last.subject == triple.subject:
            if last.predicate == triple.predicate:
                pieces.append(f", {value}")
            else:
                pieces.append(f";\n    {_write_predicate(triple.predicate)} {value}")
        else:
            if last:
                pieces.append(".\n")
            pieces.append(f"{triple.subject} {_write_predicate(triple.predicate)} {value}")
        last = triple
    return "".join(pieces) + (".\n" if last else "")


def write_nquads(triples: Iterable[Triple]) -> str:
    """Return triples as N-Quads of the default graph, types first."""
    return "".join(f"{triple} .\n" for triple in order_types_first(triples))


def read_triples(content: str, format: str) -> list[Triple]:
    """Return the triples of a resource's content; an empty list for text. Raises `Misuse`."""
    if format == "text":
        return []
    if format not in _FORMATS:
        raise Misuse(f"{format!r} is no format of triples.", hint=f"Known: {', '.join(_FORMATS)}.")
    try:
        quads = [*parse(content.encode(), format=_FORMATS[format])]
    except (SyntaxError, ValueError) as error:
        raise Misuse(f"The content is no {format}: {error}") from error
    return [Triple(quad.subject, quad.predicate, quad.object) for quad in quads]


def read_ntriples(lines: Iterable[str]) -> list[Triple]:
    """Return the triples of lines that we wrote ourselves."""
    data = "\n".join(lines).encode()
    return [
        Triple(quad.subject, quad.predicate, quad.object)
        for quad in parse(data, format=RdfFormat.N_TRIPLES)
    ]


def get_value(term: object) -> str:
    """Return the IRI or the text of a term."""
    return str(getattr(term, "value", term))


def order_types_first(triples: Iterable[Triple]) -> list[Triple]:
    """Return the `rdf:type` triples first, then the others, in stable order."""
    return sorted(triples, key=lambda triple: triple.predicate != RDF_TYPE)


def _write_predicate(predicate: NamedNode) -> str:
    return "a" if predicate == RDF_TYPE else str(predicate)


def _write_term(term: object) -> str:
    if isinstance(term, Literal) and (bare := _BARE.get(term.datatype.value)):
        return term.value if bare.fullmatch(term.value) else str(term)
    return str(term)
