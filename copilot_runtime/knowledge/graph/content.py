"""Triples of what a resource has for content."""

import hashlib
from collections.abc import Iterable

from pyoxigraph import (
    BlankNode,
    CanonicalizationAlgorithm,
    Dataset,
    DefaultGraph,
    Literal,
    NamedNode,
    Quad,
    RdfFormat,
    Triple,
    parse,
)

from copilot_runtime.errors import Misuse
from copilot_runtime.jsonvalue import JsonObject, JsonValue, as_object, as_objects, get_text
from copilot_runtime.knowledge.graph.terms import Term, text_of

FORMATS = {
    "nquads": RdfFormat.N_QUADS,
    "turtle": RdfFormat.TURTLE,
    "jsonld": RdfFormat.JSON_LD,
}
"""Contents that have triples. No parser of pyoxigraph fetches a context."""

SKOLEM = "urn:skolem:"


def read_content(content: str, format: str, uri: str) -> list[tuple[str, str, str]]:
    """Return the triples of a content, each as three texts of N-Triples, in its order.

    Names of graphs are left out. Blank nodes get IRIs, the same whenever the content is: made of
    the resource and of their canonical names. Raises `Misuse` for what cannot be read.
    """
    if format not in FORMATS:
        return []
    try:
        quads: Iterable[Quad] = parse(content, format=FORMATS[format])
        triples = [quad.triple for quad in quads]
    except (SyntaxError, ValueError) as error:
        raise Misuse(f"The content of {uri!r} is no {format}: {error}") from None
    return encode_triples(triples, uri)


def encode_triples(triples: Iterable[Triple], uri: str) -> list[tuple[str, str, str]]:
    """Return triples as texts of N-Triples, each once, without blank nodes."""
    triples = [*triples]
    if any("_:" in str(triple) and _has_blank(triple) for triple in triples):
        triples = _name_blanks(triples, uri)
    texts = (
        (str(triple.subject), str(triple.predicate), text_of(triple.object)) for triple in triples
    )
    return [*dict.fromkeys(texts)]


def _has_blank(term: Term) -> bool:
    if isinstance(term, Triple):
        return _has_blank(term.subject) or _has_blank(term.object)
    return isinstance(term, BlankNode)


def _name_blanks(triples: Iterable[Triple], uri: str) -> list[Triple]:
    """Put IRIs in the place of blank nodes, those of their names after canonicalisation."""
    dataset = Dataset(Quad(*triple) for triple in triples)
    dataset.canonicalize(CanonicalizationAlgorithm.RDFC_1_0)
    quads = sorted(dataset.quads_for_graph_name(DefaultGraph()), key=str)
    return [_replace_blank(quad.triple, uri) for quad in quads]


def _replace_blank(term: Term, uri: str) -> "Triple":
    return Triple(
        _name(term.subject, uri),  # pyright: ignore
        term.predicate,  # pyright: ignore
        _name(term.object, uri),  # pyright: ignore
    )


def _name(term: Term, uri: str) -> Term:
    if isinstance(term, Triple):
        return _replace_blank(term, uri)
    if isinstance(term, BlankNode):
        digest = hashlib.sha256(f"{uri}\n{term.value}".encode()).hexdigest()[:32]
        return NamedNode(f"{SKOLEM}{digest}")
    return term


def encode_rdfjs(triples: Iterable[Triple]) -> list[JsonObject]:
    """Return triples as Copilot-LD stores them: quads of RDF/JS in the default graph."""
    return [
        {
            "termType": "Quad",
            "subject": _encode_term(triple.subject),
            "predicate": _encode_term(triple.predicate),
            "object": _encode_term(triple.object),
            "graph": {"termType": "DefaultGraph", "value": ""},
        }
        for triple in triples
    ]


def decode_rdfjs(quads: JsonValue) -> list[Triple]:
    """Read quads of RDF/JS. Raises `Misuse`."""
    try:
        return [
            Triple(
                _decode_term(quad.get("subject")),  # pyright: ignore
                _decode_term(quad.get("predicate")),  # pyright: ignore
                _decode_term(quad.get("object")),
            )
            for quad in as_objects(quads)
        ]
    except (TypeError, ValueError) as error:
        raise Misuse(f"This is no quad of RDF/JS: {error}") from None


def _encode_term(term: Term) -> JsonObject:
    match term:
        case Literal():
            return {
                "termType": "Literal",
                "value": term.value,
                "language": term.language or "",
                "datatype": {"termType": "NamedNode", "value": term.datatype.value},
            }
        case Triple():
            return encode_rdfjs([term])[0]
        case NamedNode() | BlankNode():
            return {"termType": type(term).__name__, "value": term.value}


def _decode_term(value: JsonValue) -> Term:
    term = as_object(value)
    text = get_text(term, "value")
    match term.get("termType"):
        case "NamedNode":
            return NamedNode(text)
        case "BlankNode":
            return BlankNode(text)
        case "Literal" if language := get_text(term, "language"):
            return Literal(text, language=language)
        case "Literal":
            datatype = get_text(as_object(term.get("datatype")), "value")
            return Literal(text, datatype=NamedNode(datatype) if datatype else None)
        case "Quad":
            return decode_rdfjs([term])[0]
        case other:
            raise ValueError(f"a term cannot be a {other!r}")
