"""The ontology of the example: its data conform to it, and a mistake in them does not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyshacl
import pytest
from rdflib import RDF, XSD, Graph, Literal, Namespace, URIRef
from rdflib.term import Node

from copilot_runtime.extensions.knowledge.graph import GraphIndex, Ontology
from copilot_runtime.extensions.knowledge.ingestion import Ingestion
from copilot_runtime.extensions.knowledge.resources import ResourceIndex
from copilot_runtime.storage import MemoryStorage
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

PAGES = Path(__file__).parents[4] / "examples" / "knowledge" / "pages"
SCHEMA = Namespace("https://schema.org/")

Triple = tuple[Node, Node, Node]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def index() -> GraphIndex:
    storage = MemoryStorage()
    resources = ResourceIndex(storage)
    await Ingestion(resources, storage).run([PAGES])
    graph = GraphIndex(storage)
    await graph.update(resources)
    return graph


@pytest.fixture(scope="module")
async def ontology(index: GraphIndex) -> Ontology:
    return await index.ontology()


@pytest.fixture(scope="module")
async def shapes(index: GraphIndex) -> Graph:
    return Graph().parse(data=await index.ontology_turtle(), format="turtle")


@pytest.fixture
async def data(index: GraphIndex) -> Graph:
    lines = (f"{triple} ." for triple in await index.triples(limit=0))
    return Graph().parse(data="\n".join(lines), format="nt")


def conforms(data: Graph, shapes: Graph) -> bool:
    result: Any = pyshacl.validate(data, shacl_graph=shapes, inplace=True)
    return result[0]


def first(data: Graph, predicate: str, type: str = "") -> Triple:
    """Return the first triple of a predicate, about a thing of a type."""
    found = data.triples((None, SCHEMA[predicate], None))
    return min(
        triple for triple in found if not type or (triple[0], RDF.type, SCHEMA[type]) in data
    )


def drop(predicate: str, type: str = "") -> Callable[[Graph], None]:
    """Return what takes the first triple of a predicate away."""

    def apply(data: Graph) -> None:
        data.remove(first(data, predicate, type))

    return apply


def change(predicate: str, value: Node, type: str = "") -> Callable[[Graph], None]:
    """Return what puts another value in the place of the first one."""

    def apply(data: Graph) -> None:
        triple = first(data, predicate, type)
        data.remove(triple)
        data.add((triple[0], triple[1], value))

    return apply


def add(predicate: str, value: Node, type: str = "") -> Callable[[Graph], None]:
    """Return what gives a thing one more value."""

    def apply(data: Graph) -> None:
        subject, path, _ = first(data, predicate, type)
        data.add((subject, path, value))

    return apply


def rename(predicate: str, name: str) -> Callable[[Graph], None]:
    """Return what calls a property otherwise."""

    def apply(data: Graph) -> None:
        triple = first(data, predicate)
        data.remove(triple)
        data.add((triple[0], SCHEMA[name], triple[2]))

    return apply


MISTAKES: dict[str, Callable[[Graph], None]] = {
    "a person has no name": drop("name", "Person"),
    "a ship has two call signs": add("callSign", Literal("XYZ", lang="en")),
    "a ship carries a word of people": change("vehicleSeatingCapacity", Literal("many")),
    "a course has a text for its provider": change("provider", Literal("us"), "Course"),
    "an address is reviewed": change("itemReviewed", URIRef("https://example.invalid/nowhere")),
    "a friendship is one-sided": drop("knows"),
    "somebody works where nobody knows them": drop("member", "Organization"),
    "a part is in no document": drop("hasPart", "DigitalDocument"),
    "a latitude is a text": change("latitude", Literal("north")),
    "a date does not exist": change(
        "datePublished", Literal("2026-02-30", datatype=XSD.date), "Review"
    ),
    "a departure is called otherwise": rename("departureTime", "departingTime"),
    "a crossing departs twice": add("departureTime", Literal("23:59:00", datatype=XSD.time)),
}


async def test_the_data_conform(data: Graph, shapes: Graph) -> None:
    assert conforms(data, shapes)


@in_one_test("mistake", MISTAKES.values(), ids=[*MISTAKES])
@pytest.mark.stalls(reason="pyshacl runs in the test itself")
async def test_data_with_a_mistake_do_not_conform(
    mistake: Callable[[Graph], None], data: Graph, shapes: Graph
) -> None:
    mistake(data)
    assert not conforms(data, shapes)


async def test_the_inverses_are_those_of_the_pages(ontology: Ontology) -> None:
    pairs = {
        (found.name, item.name, item.inverse.removeprefix(str(SCHEMA)))
        for found in ontology.classes
        for item in found.properties
        if item.inverse
    }
    assert pairs >= {
        ("Person", "knows", "knows"),
        ("Person", "worksFor", "member"),
        ("Organization", "member", "worksFor"),
        ("BoatTerminal", "containedInPlace", "containsPlace"),
        ("DefinedTerm", "inDefinedTermSet", "hasDefinedTerm"),
    }
    assert {("Review", "itemReviewed"), ("Article", "about")}.isdisjoint(
        {(class_, name) for class_, name, _ in pairs}
    )
