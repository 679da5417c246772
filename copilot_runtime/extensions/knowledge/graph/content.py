"""The triples of a resource: read from its content, and kept in the log of the index."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from math import factorial
from types import MappingProxyType

from pyoxigraph import (
    BlankNode,
    CanonicalizationAlgorithm,
    Dataset,
    DefaultGraph,
    Literal,
    NamedNode,
    Quad,
    Triple,
)

from copilot_runtime.base import concurrency
from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsonvalue import JsonObject, JsonValue, as_object, as_objects, get_text
from copilot_runtime.extensions.knowledge.graph.table import Holder, TripleTable
from copilot_runtime.extensions.knowledge.graph.terms import Term, text_of
from copilot_runtime.extensions.knowledge.identifiers import decode_identifier, encode_identifier
from copilot_runtime.extensions.knowledge.rdf.terms import parse_triples, read_triples
from copilot_runtime.storage import Storage
from copilot_runtime.storage.jsonlines import JsonLines, encode_lines, salvage_lines

SKOLEM = "urn:skolem:"

_MOST_WORK = 300_000
"""Maximum number of RDFC-1.0 steps to name blank nodes: a fraction of a second."""

_Line = tuple[str | bool, ...]
"""A triple from the perspective of one blank node."""


def read_content(content: str, format: str, uri: str) -> list[tuple[str, str, str]]:
    """Return the triples of a content, each as three texts of N-Triples, in its order.

    Names of graphs are left out. Blank nodes get IRIs, the same whenever the content is: made of
    the resource and of their canonical names, or of their order where there are too many ways to
    name them. Raises `Misuse` for what cannot be read.
    """
    triples = read_triples(content, format, f"The content of {uri!r}")
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
    """Put IRIs in the place of blank nodes, those of their names after canonicalisation.

    Where that would take too long, since many alike refer to each other, their names are their
    numbers in the order of the triples: the same for the same content, and for no other order.
    """
    triples = [*triples]
    if _estimate_work(triples) > _MOST_WORK:
        numbers: dict[str, int] = {}
        for node in chain.from_iterable(map(_find_blanks, triples)):
            numbers.setdefault(node, len(numbers))
        return [_replace_blank(triple, uri, numbers) for triple in triples]
    dataset = Dataset(Quad(*triple) for triple in triples)
    dataset.canonicalize(CanonicalizationAlgorithm.RDFC_1_0)
    quads = sorted(dataset.quads_for_graph_name(DefaultGraph()), key=str)
    return [_replace_blank(quad.triple, uri) for quad in quads]


def _find_blanks(term: Term) -> Iterator[str]:
    """Yield the blank nodes of a term, from left to right."""
    if isinstance(term, Triple):
        yield from _find_blanks(term.subject)
        yield from _find_blanks(term.object)
    elif isinstance(term, BlankNode):
        yield term.value


def _mask(term: Term, node: str) -> Iterator[str | bool]:
    """Yield the parts of a term; a blank node becomes `True` if it is `node`, else `False`."""
    if isinstance(term, Triple):
        yield from _mask(term.subject, node)
        yield str(term.predicate)
        yield from _mask(term.object, node)
    else:
        yield term.value == node if isinstance(term, BlankNode) else str(term)


def _estimate_work(triples: Iterable[Triple]) -> int:
    """Return an upper bound of the RDFC-1.0 steps for nodes with equal first-degree hashes.

    It tries every order of the neighbours of a node that look alike, and for each of these again.
    """
    lines: dict[str, set[_Line]] = {}
    links: dict[str, set[tuple[_Line, str]]] = {}
    for triple in {*triples}:
        nodes = {*_find_blanks(triple)}
        for node in nodes:
            line = (*_mask(triple, node),)
            lines.setdefault(node, set()).add(line)
            links.setdefault(node, set()).update((line, other) for other in nodes - {node})
    numbers: dict[frozenset[_Line], int] = {}
    looks = {node: numbers.setdefault(frozenset(own), len(numbers)) for node, own in lines.items()}
    counts = Counter(looks.values())
    alike = {node for node, look in looks.items() if counts[look] > 1}
    work = 0
    while alike and work <= _MOST_WORK:
        group, orders, waiting = 0, 1, [alike.pop()]
        while waiting:
            node = waiting.pop()
            group += 1
            neighbours = [(line, other) for line, other in links[node] if counts[looks[other]] > 1]
            for count in Counter((line, looks[other]) for line, other in neighbours).values():
                orders = min(orders * factorial(min(count, 20)), _MOST_WORK + 1)
            found = alike & {other for _, other in neighbours}
            alike -= found
            waiting += found
        work += max(group**3, group * orders)
    return work


def _replace_blank(
    term: Triple, uri: str, names: Mapping[str, int] = MappingProxyType({})
) -> Triple:
    return Triple(
        _name(term.subject, uri, names),  # pyright: ignore
        term.predicate,
        _name(term.object, uri, names),
    )


def _name(term: Term, uri: str, names: Mapping[str, int]) -> Term:
    if isinstance(term, Triple):
        return _replace_blank(term, uri, names)
    if isinstance(term, BlankNode):
        name = names.get(term.value, term.value)
        digest = hashlib.sha256(f"{uri}\n{name}".encode()).hexdigest()[:32]
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


class GraphLog:
    """A line for each resource: `{"id", "identifier", "version", "triples"}`, these in N-Triples.

    A later line of an id replaces the earlier one at its place, or says that it is gone. A line
    that a crash has torn is none: its resource is taken in anew. Lines of Copilot-LD, with `quads`
    in place of `triples`, are read as well.
    """

    def __init__(self, storage: Storage, key: str) -> None:
        self._lines = JsonLines(storage, key)

    async def refresh(self, table: TripleTable) -> None:
        """Apply the lines added by any process since the last read."""
        lines = await self._lines.read_new()
        if lines.is_anew:
            fresh = TripleTable()
            await concurrency.call(_apply, fresh, lines.data)
            table.replace(fresh)
        elif lines.data:
            await concurrency.call(_apply, table, lines.data)
        self._lines.advance(lines)

    async def append(self, lines: Iterable[JsonObject]) -> None:
        """Append lines."""
        data: bytes = await concurrency.call(encode_lines, lines)
        if not data:
            return
        await self._lines.append(data)
        new = await self._lines.read_new()
        if new.data == data:  # else another process appended, too, and `refresh` reads its lines
            self._lines.advance(new)

    async def compact(self, table: TripleTable) -> None:
        """Rewrite the log with one line per resource if most lines are obsolete."""
        if self._lines.is_long(len(table)):
            await self._lines.rewrite(lambda: _write_all(table))


def encode_line(holder: Holder, table: TripleTable) -> JsonObject:
    """Return the line of a resource."""
    line: JsonObject = {
        "id": str(holder.identifier),
        "identifier": encode_identifier(holder.identifier),
        "version": holder.version,
        "triples": "\n".join(table.decode(holder.rows)),
    }
    return {**line, "error": holder.error} if holder.error else line


def decode_line(line: JsonObject, table: TripleTable) -> Holder:
    """Read the line of a resource. Raises `Misuse`."""
    identifier = decode_identifier(line.get("identifier"))
    if "quads" in line:
        texts = encode_triples(decode_rdfjs(line["quads"]), str(identifier))
    else:
        texts = [_split(text) for text in get_text(line, "triples").split("\n") if text]
    return Holder(
        identifier, get_text(line, "version"), table.encode(texts), get_text(line, "error")
    )


def encode_copilot_ld_line(holder: Holder, table: TripleTable) -> JsonObject:
    """Return the line that Copilot-LD has for a resource in its `graphs/index.jsonl`."""
    identifier = {
        name: value for name, value in encode_identifier(holder.identifier).items() if value != ""
    }
    quads = encode_rdfjs(parse_triples(table.decode(holder.rows)))
    return {"id": str(holder.identifier), "identifier": identifier, "quads": quads}


def delete_line(uri: str) -> JsonObject:
    """Return the line that says that a resource is gone."""
    return {"id": uri, "deleted": True}


def _apply(table: TripleTable, data: bytes) -> None:
    """Apply lines to a table."""
    for line in salvage_lines(data):
        uri = get_text(line, "id")
        if line.get("deleted"):
            table.remove(uri)
            continue
        try:
            holder = decode_line(line, table)
        except Misuse:
            continue
        table.put(uri, holder)


def _split(line: str) -> list[str]:
    parts = line.removesuffix(" .").split(" ", 2)
    if len(parts) != 3 or not line.startswith("<"):
        raise Misuse("A line of the graph has no triple.")
    return parts


def _write_all(table: TripleTable) -> bytes:
    return encode_lines(encode_line(holder, table) for holder in table.all_holders())
