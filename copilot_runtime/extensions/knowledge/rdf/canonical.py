"""Canonical names of blank nodes: equal content has equal names on every page and in every run."""

from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from pyoxigraph import BlankNode, NamedNode, Triple

from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.extensions.knowledge.identifiers import hash_values
from copilot_runtime.extensions.knowledge.rdf.terms import Term

SHORT = 8
"""Hash digits of Copilot-LD's names. It hashes values without datatype and language."""
LONG = 32

_MOST_LINES = 300_000
"""Maximum number of lines hashed for items in a reference cycle: about a second."""

_Lines = dict[str, list[tuple[str, Term]]]


def name_blank_nodes(triples: Iterable[Triple], digits: int = LONG) -> list[Triple]:
    """Replace every blank node with an IRI that is a hash of its content.

    Two nodes of which the same is said are one. What is said of a node includes the content of the
    anonymous nodes that it refers to, as far as they go; nodes that refer to each other in a
    circle are told apart by all that can be reached from them.
    """
    triples = [*triples]
    content: _Lines = {}
    for triple in triples:
        if isinstance(triple.subject, BlankNode):
            content.setdefault(triple.subject.value, []).append(
                (triple.predicate.value, cast("Term", triple.object))
            )
        if isinstance(triple.object, BlankNode):
            content.setdefault(triple.object.value, [])
    if not content:
        return triples
    names = _Hasher(content, digits).names()
    named = (
        Triple(
            names[subject.value] if isinstance(subject := triple.subject, BlankNode) else subject,
            triple.predicate,
            names[value.value] if isinstance(value := triple.object, BlankNode) else value,
        )
        for triple in triples
    )
    return [*dict.fromkeys(named)]


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
