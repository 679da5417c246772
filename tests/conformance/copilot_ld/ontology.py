"""What an ontology says of classes, their properties and inverses."""

import re
from typing import Any

from copilot_runtime.extensions.knowledge.graph import GraphIndex, GraphItem, Ontology
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.rdf.terms import parse_triples
from copilot_runtime.storage import MemoryStorage
from tests.conformance.copilot_ld.cases import Case
from tests.conformance.copilot_ld.graph import A, E, S


async def answer(case: Case) -> Any:
    """Make the data that the input of a case describes, and look into their ontology."""
    if isinstance(case.input, dict):
        (forward, count), (backward, other) = case.input.items()
        return _inverses(await _derive(_links(forward, count, backward, other)))
    if "dominant" in case.feature:
        return _has_dominant_class(await _derive(_objects(case.input)))
    raise NotImplementedError(case.feature)


async def _derive(lines: list[str]) -> Ontology:
    graph = GraphIndex(MemoryStorage())
    await graph.add(GraphItem(Identifier("common.Message", "m1"), parse_triples(lines)))
    return await graph.ontology()


def _links(forward: str, count: int, backward: str, other: int) -> list[str]:
    """Return links from one organisation to people, and from people to the organisation."""
    people = [f"<{E}p{number}>" for number in range(max(count, other))]
    return [
        f"<{E}o> {A} <{S}Organization> .",
        *(f"{person} {A} <{S}Person> ." for person in people),
        *(f"<{E}o> <{S}{forward}> {person} ." for person in people[:count]),
        *(f"{person} <{S}{backward}> <{E}o> ." for person in people[:other]),
    ]


def _objects(text: str) -> list[str]:
    """Return things of the classes that a text counts, as in `1 Person + 1 Organization`."""
    (predicate,) = re.findall(r"'(\w+)'", text)
    lines = [f"<{E}e> {A} <{S}Event> ."]
    for count, class_ in re.findall(r"(\d+) ([A-Z]\w*)", text):
        for number in range(int(count)):
            thing = f"<{E}{class_}{number}>"
            lines += [f"{thing} {A} <{S}{class_}> .", f"<{E}e> <{S}{predicate}> {thing} ."]
    return lines


def _inverses(ontology: Ontology) -> dict[str, str]:
    return {
        f"{found.iri}|{item.path}|{item.dominant}": item.inverse
        for found in ontology.classes
        for item in found.properties
        if item.inverse
    }


def _has_dominant_class(ontology: Ontology) -> bool:
    return any(item.dominant for found in ontology.classes for item in found.properties)
