"""The ontology of the example accepts its data, and refuses what is wrong with them."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyshacl
import pytest
import rdflib
from rdflib import RDF, SH, XSD, Literal, URIRef
from rdflib.term import Node

from copilot_runtime.extensions.knowledge import Knowledge
from tests.extensions.knowledge.test_example import PAGES, THINGS
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

SCHEMA = rdflib.Namespace("https://schema.org/")
THING = rdflib.Namespace(THINGS)


@dataclass(frozen=True)
class Line:
    """What the pages say, and the shapes that were derived from it."""

    data: rdflib.Graph
    shapes: rdflib.Graph


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def line(anyio_backend: str) -> AsyncIterator[Line]:
    knowledge = Knowledge("memory", sources=[PAGES], base="https://skerryline.example/")
    await knowledge.ingest()
    triples = await knowledge.triples(("?", "?", "?"), limit=100_000)
    text = "\n".join(f"{' '.join(triple)} ." for triple in triples)
    data = rdflib.Graph().parse(data=text, format="nt")
    shapes = rdflib.Graph().parse(data=await knowledge.ontology_turtle(), format="turtle")
    yield Line(data, shapes)
    await knowledge.aclose()


def violations(line: Line, data: rdflib.Graph, *focus: str) -> set[tuple[Node | None, Node | None]]:
    """Return which things break which constraints; all things, or those named."""
    result: Any = pyshacl.validate(
        data, shacl_graph=line.shapes, focus_nodes=[*focus] or None, inplace=True
    )
    _, report, _ = result
    return {
        (report.value(it, SH.focusNode), report.value(it, SH.sourceConstraintComponent))
        for it in report.subjects(RDF.type, SH.ValidationResult)
    }


def copy(graph: rdflib.Graph) -> rdflib.Graph:
    return rdflib.Graph() + graph


def test_the_ontology_accepts_the_data(line: Line) -> None:
    assert len(line.data) > 1400
    assert violations(line, copy(line.data)) == set()


def test_the_ontology_is_valid_shacl(line: Line) -> None:
    result: Any = pyshacl.validate(rdflib.Graph(), shacl_graph=line.shapes, meta_shacl=True)

    assert result[0]


@in_one_test(
    ("one", "other"),
    [
        ("worksFor", "member"),
        ("isPartOf", "hasPart"),
        ("containedInPlace", "containsPlace"),
        ("inDefinedTermSet", "hasDefinedTerm"),
        ("parentOrganization", "subOrganization"),
    ],
)
def test_inverses_are_found(line: Line, one: str, other: str) -> None:
    inverted = {*line.shapes.objects(None, SH.inversePath)}

    assert {SCHEMA[one], SCHEMA[other]} <= inverted


@dataclass(frozen=True)
class Change:
    """A thing whose values of a property are replaced, and the constraint that this breaks."""

    thing: str
    property: str
    values: tuple[Node, ...]
    breaks: URIRef


DATATYPE, COUNT = SH.DatatypeConstraintComponent, SH.MinCountConstraintComponent
MOST, CLASS = SH.MaxCountConstraintComponent, SH.ClassConstraintComponent
KIND = SH.NodeKindConstraintComponent

BROKEN: Mapping[str, Change] = {
    "a ship for nobody knows how many": Change("ship/petrel", "vehicleSeatingCapacity", (), COUNT),
    "a ship for ninety-nine in words": Change(
        "ship/petrel", "vehicleSeatingCapacity", (Literal("ninety-nine"),), DATATYPE
    ),
    "a sailing that departs twice": Change(
        "trip/s101",
        "departureTime",
        (Literal("05:40:00", datatype=XSD.time), Literal("06:40:00", datatype=XSD.time)),
        MOST,
    ),
    "a sailing from an island and no harbour": Change(
        "trip/s101", "departureBoatTerminal", (THING["island/skell"],), CLASS
    ),
    "a fare that is cheap": Change("fare/car", "price", (Literal("cheap"),), DATATYPE),
    "a report of last winter": Change(
        "report/fog-2025-01-14", "datePublished", (Literal("last winter"),), DATATYPE
    ),
    "a captain who works for a ship": Change(
        "person/tomas-verhey", "worksFor", (THING["ship/tern"],), CLASS
    ),
    "a harbour on a text": Change(
        "harbour/northwick", "containedInPlace", (Literal("Great Corrow", lang="en"),), KIND
    ),
    "a harbour without an address": Change("harbour/northwick", "address", (), COUNT),
    "a course that takes the number two": Change(
        "course/lashing-and-stowage", "timeRequired", (Literal(2),), DATATYPE
    ),
    "a word in a policy": Change(
        "term/swell", "inDefinedTermSet", (THING["policy/weather"],), CLASS
    ),
    "a list of questions that are harbours": Change(
        "faq/travel", "mainEntity", (THING["harbour/northwick"],), CLASS
    ),
    "a rule that is part of nothing": Change("rule/dogs", "isPartOf", (), COUNT),
}


@in_one_test("name", BROKEN)
def test_the_ontology_refuses(line: Line, name: str) -> None:
    change = BROKEN[name]
    thing, predicate = THING[change.thing], SCHEMA[change.property]
    data = copy(line.data)
    assert (thing, predicate, None) in data
    data.remove((thing, predicate, None))
    for value in change.values:
        data.add((thing, predicate, value))

    assert (thing, change.breaks) in violations(line, data, str(thing))
