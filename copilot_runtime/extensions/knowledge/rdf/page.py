"""Read the annotations of a page in all supported syntaxes, with canonical names of blank nodes."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyoxigraph import BlankNode, NamedNode

from copilot_runtime.base.errors import CopilotError, LimitExceeded
from copilot_runtime.extensions.knowledge.identifiers import hash_values
from copilot_runtime.extensions.knowledge.rdf.html import (
    expand_hidden_elements,
    find_hidden_elements,
    parse_html,
)
from copilot_runtime.extensions.knowledge.rdf.jsonld import read_jsonld
from copilot_runtime.extensions.knowledge.rdf.microdata import read_microdata
from copilot_runtime.extensions.knowledge.rdf.rdfa import read_rdfa
from copilot_runtime.extensions.knowledge.rdf.terms import (
    RDF_TYPE,
    SCHEMA,
    Statement,
    Statements,
    Term,
    make_iri,
)

if TYPE_CHECKING:
    from lxml.etree import _Element as Element  # pyright: ignore[reportPrivateUsage]


SHORT = 8
"""Hash digits of Copilot-LD's names. It hashes values without datatype and language."""
LONG = 32

_JSON_LD = "application/ld+json"


@dataclass(frozen=True)
class Page:
    """The annotations of one page."""

    items: Mapping[str, list[Statement]]
    """The statements about each thing that has a type of schema.org, by its IRI, types first."""
    annotated: bool = False
    """Whether the text itself is annotated (microdata or RDFa), not only a script."""
    warnings: list[str] = field(default_factory=list[str])
    """Annotations that could not be read, and doubts about its encoding."""
    root: "Element | None" = None
    hidden: "Collection[Element]" = ()
    """Elements whose own attributes hide them."""


def read_page(data: bytes, base: str, digits: int = LONG) -> Page:
    """Read microdata, RDFa and JSON-LD of an HTML page. Nothing is loaded from elsewhere.

    `base` is the address of the page, unless the page names another one; `digits` are those of
    the names of things without a name. Raises `LimitExceeded` for a page that is an attack.
    """
    root, warnings = parse_html(data)
    if root is None:
        return Page({}, warnings=warnings)
    base = _find_base(root, base)
    statements = Statements()
    hidden = find_hidden_elements(root)
    concealed = expand_hidden_elements(root, hidden)
    if root.find(".//*[@itemscope]") is not None:
        read_microdata(root, base, statements, concealed)
    if root.find(".//*[@typeof]") is not None:
        read_rdfa(root, base, statements, concealed)
    annotated = len(statements)
    for script in root.iter("script"):
        if script.get("type", "").partition(";")[0].strip().lower() == _JSON_LD:
            try:
                read_jsonld(script.text or "", base, statements)
            except CopilotError as error:
                warnings.append(error.message)
    items = group_items(name_blank_nodes(statements, digits))
    return Page(items, annotated > 0 and bool(items), warnings, root, hidden)


def group_items(statements: Iterable[Statement]) -> dict[str, list[Statement]]:
    """Return the statements about each thing with a schema.org type, types first."""
    things: dict[str, tuple[list[Statement], list[Statement]]] = {}
    typed: set[str] = set()
    for statement in statements:
        subject, predicate, value = statement
        if isinstance(subject, NamedNode):
            types, others = things.setdefault(subject.value, ([], []))
            is_type = predicate == RDF_TYPE
            (types if is_type else others).append(statement)
            if is_type and _is_schema(value):
                typed.add(subject.value)
    return {iri: types + others for iri, (types, others) in things.items() if iri in typed}


def _is_schema(term: object) -> bool:
    return isinstance(term, NamedNode) and term.value.startswith(SCHEMA)


def _find_base(root: "Element", base: str) -> str:
    element = root.find(".//base[@href]")
    named = make_iri(element.get("href") or "", base) if element is not None else None
    return named.value if named else base


_MOST_LINES = 300_000
"""Maximum number of lines hashed for items in a reference cycle: about a second."""

_Lines = dict[str, list[tuple[str, Term]]]


def name_blank_nodes(statements: Iterable[Statement], digits: int = LONG) -> list[Statement]:
    """Replace every blank node with an IRI that is a hash of its content.

    Nodes with equal content are merged. A node's content includes that of the blank nodes that it
    refers to, recursively; nodes in a cycle are distinguished by all nodes reachable from them.
    """
    statements = [*statements]
    content: _Lines = {}
    for subject, predicate, value in statements:
        if isinstance(subject, BlankNode):
            content.setdefault(subject.value, []).append((predicate.value, value))
        if isinstance(value, BlankNode):
            content.setdefault(value.value, [])
    if not content:
        return statements
    names = _Hasher(content, digits).names()

    def rename(statement: Statement) -> Statement:
        subject, predicate, value = statement
        if isinstance(subject, BlankNode):
            subject = names[subject.value]
        if isinstance(value, BlankNode):
            value = names[value.value]
        return subject, predicate, value

    return [*dict.fromkeys(map(rename, statements))]


class _Hasher:
    def __init__(self, content: _Lines, digits: int) -> None:
        self._content = content
        self._digits = digits
        self._names: dict[str, NamedNode] = {}
        self._work = 0

    def names(self) -> Mapping[str, NamedNode]:
        for group in _components(
            {
                node: [term.value for _, term in lines if isinstance(term, BlankNode)]
                for node, lines in self._content.items()
            }
        ):
            self._name_group(group)
        return self._names

    def _name_group(self, group: list[str]) -> None:
        """Name the nodes of a strongly connected component, which mostly has a single node."""
        labels = dict.fromkeys(group, "")
        kinds = 0
        while True:
            labels = {node: self._hash(node, labels) for node in group}
            # a round tells more nodes apart, or none will
            if len(group) == 1 or kinds == (kinds := len(set(labels.values()))):
                break
        for node, label in labels.items():
            self._names[node] = NamedNode(f"urn:skolem:{label}")

    def _hash(self, node: str, labels: Mapping[str, str]) -> str:
        lines = self._content[node]
        self._work += len(lines)
        if self._work > _MOST_LINES:
            raise LimitExceeded("Too many items without a name refer to each other.")
        texts = {f"{predicate} {self._text(term, labels)}" for predicate, term in lines}
        return hash_values("\n".join(sorted(texts)), length=self._digits)

    def _text(self, term: Term, labels: Mapping[str, str]) -> str:
        if isinstance(term, BlankNode):
            if term.value in labels:
                return f"_:{labels[term.value]}"
            term = self._names[term.value]
        return term.value if self._digits == SHORT else str(term)


def _components(edges: Mapping[str, list[str]]) -> Iterator[list[str]]:
    """Yield the strongly connected components of a graph, each behind those that it refers to.

    Tarjan, Depth-first search and linear graph algorithms, 1972; without recursion.
    """
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    places: dict[str, int] = {}
    for start in edges:
        if start in order:
            continue
        order[start] = lowest[start] = len(order)
        places[start] = len(path)
        path.append(start)
        work = [(start, iter(edges[start]))]
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in order:
                    order[target] = lowest[target] = len(order)
                    places[target] = len(path)
                    path.append(target)
                    work.append((target, iter(edges[target])))
                    break
                if target in places:
                    lowest[node] = min(lowest[node], order[target])
            else:
                work.pop()
                if work:
                    outer = work[-1][0]
                    lowest[outer] = min(lowest[outer], lowest[node])
                if lowest[node] == order[node]:
                    group = path[places[node] :]
                    del path[places[node] :]
                    for name in group:
                        del places[name]
                    yield group
