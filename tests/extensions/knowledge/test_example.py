"""The pages of the example are found by what people ask, without a key and without a network."""

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from runpy import run_path
from typing import Any

import pyshacl
import pytest
import rdflib
from rdflib import RDF, SH, XSD, Literal, URIRef
from rdflib.term import Node

from copilot_runtime import CopilotRuntime, DemoAdapter, Settings
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.settings import load_settings
from copilot_runtime.testing import Client
from tests.documents import ROOT
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

EXAMPLE = Path(__file__).parents[3] / "examples" / "knowledge"
PAGES = EXAMPLE / "pages"
THINGS = "https://skerryline.example/id/"

QUESTIONS = {
    "Who is the captain of MV Tern?": {"person/tomas-verhey"},
    "Which ship is the battery-electric ferry to Little Corrow?": {"ship/petrel"},
    "Do dogs travel on a lead?": {"rule/dogs"},
    "What did the radar show in the fog off Northwick?": {"report/fog-2025-01-14"},
    "Why did the engine of MV Gannet stop off St Brannoc?": {"report/engine-2024-06-22"},
    "Who bakes the bread for the café?": {"organization/corrow-bakery"},
    "What does a car up to five metres cost?": {"fare/car"},
    "When does the last boat from Skell leave?": {"trip/s302", "harbour/skell-pier"},
    "Which harbour has a charging arm and shore power?": {
        "harbour/corrow-town",
        "term/shore-power",
    },
    "What are the limits of wind for a sailing?": {"rule/limits", "policy/weather"},
    "Where can I learn lashing and stowage?": {"course/lashing-and-stowage"},
    "When is Fleet Day 2025?": {"event/fleet-day-2025"},
    "What was wrong with the bearing of the port water jet?": {"note/tern-bearing"},
    "When was the cooperative founded with a landing craft?": {
        "article/founding-1952",
        "organization/skerry-line",
    },
    "What is a muster station?": {"term/muster-station"},
}
"""What must be among the five best of each question."""

PATTERNS = {
    ("?", "schema:containedInPlace", f"{THINGS}island/great-corrow"): {
        "harbour/corrow-town",
        "harbour/northwick",
    },
    ("?", "schema:author", f"{THINGS}person/priya-nair"): {
        "report/fog-2025-01-14",
        "report/engine-2024-06-22",
        "report/kayak-2024-08-03",
    },
    ("?", "schema:isPartOf", f"{THINGS}policy/animals"): {
        "rule/dogs",
        "rule/assistance-dogs",
        "rule/cats-and-small-animals",
        "rule/livestock",
    },
    ("?", "schema:alternateName", '"Landstrom"@de'): {"term/shore-power"},
}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def line(anyio_backend: str) -> AsyncIterator[Knowledge]:
    knowledge = Knowledge("memory", sources=[PAGES], base="https://skerryline.example/")
    report = (await knowledge.ingest()).sources
    assert report is not None
    assert not report.failed
    assert not report.warnings
    yield knowledge
    await knowledge.aclose()


async def find_things(knowledge: Knowledge, uris: list[str]) -> set[str]:
    found = await knowledge.resources.get(uris)
    return {iri.removeprefix(THINGS) for resource in found for iri in resource.id.subjects}


@in_one_test("question", QUESTIONS)
async def test_what_a_question_is_about_is_among_the_five_best(
    line: Knowledge, question: str
) -> None:
    passages = await line.search(question, limit=5)

    found = await find_things(line, [passage.id for passage in passages])
    assert QUESTIONS[question] <= found


@in_one_test("pattern", PATTERNS, ids=lambda pattern: " ".join(pattern[1:]))
async def test_a_pattern_finds_exactly_what_is_meant(
    line: Knowledge, pattern: tuple[str, str, str]
) -> None:
    passages = await line.find(pattern)

    assert await find_things(line, [passage.id for passage in passages]) == PATTERNS[pattern]


@in_one_test(
    ("question", "answer"),
    [
        ("Darf mein Hund mit?", "Hunde dürfen nicht im Auto bleiben"),
        ("How do I put on a life jacket if the alarm sounds?", "below the seats"),
        ("How many sailings of MV Tern were cancelled in February?", "water jet under repair"),
    ],
)
async def test_answers_in_german_in_a_pdf_and_in_a_table_are_found(
    line: Knowledge, question: str, answer: str
) -> None:
    passages = await line.search(question, limit=5)
    texts = [passage.text for passage in passages]
    for resource in await line.resources.get([passage.id for passage in passages]):
        for iri in resource.id.subjects:  # an answer is a thing beside its question
            for triple in await line.triples((iri, "schema:acceptedAnswer", "?")):
                answers = await line.find((triple[2], "schema:text", "?"))
                texts += [passage.text for passage in answers]

    assert any(answer in " ".join(text.split()) for text in texts)


async def test_the_server_of_the_example_answers_with_a_source_that_opens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COPILOT_KNOWLEDGE_STORAGE", "memory")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server = run_path(str(EXAMPLE / "server.py"))
    async with Client(server["app"]) as chat:
        answer = await chat.say("What is a muster station?")
        link = re.search(r"\]\((/graphql/knowledge/resources/[^)#]+)#here\)", answer.text)
        assert link is not None
        page = await chat.request("GET", link[1], headers={"accept": "text/html"})

    assert "Muster station" in answer.text
    assert page.status == 200
    assert "The place where passengers gather" in page.body.decode()


def test_there_are_enough_pages_and_each_has_something_to_say() -> None:
    pages = [*PAGES.glob("*.html")]

    assert len(pages) >= 22
    assert [page.name for page in pages if not 5_000 <= page.stat().st_size <= 30_000] == []


def test_links_between_the_pages_lead_somewhere() -> None:
    texts = {page.name: page.read_text(encoding="utf-8") for page in PAGES.glob("*.html")}
    broken = [
        (name, link)
        for name, text in texts.items()
        for link in re.findall(r'href="(?!https)([^"]+)"', text)
        for target, _, anchor in [link.partition("#")]
        if anchor and f'id="{anchor}"' not in texts.get(target or name, "")
    ]

    assert broken == []


EXPECTED = {
    "Who is the captain of MV Tern?": "Captain of MV Tern",
    "Do dogs travel on a lead?": "Dogs travel on a lead",
}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """What `make run` serves where there is no copilot.yml, with stores of the test's own."""
    monkeypatch.chdir(ROOT)
    environ = {
        "COPILOT_KNOWLEDGE_STORAGE": f"local:{tmp_path}",
        "COPILOT_ANALYST_STORE": f"{tmp_path}/analyst",
        "COPILOT_THREADS": "memory",
        "COPILOT_PLANNER_STORE": "memory",
    }
    return load_settings("examples/demo.yml", environ)


def test_what_is_said_is_kept_for_the_page_traces_unless_there_are_settings(
    settings: Settings,
) -> None:
    assert settings.telemetry.content == "local"
    assert not settings.telemetry.export


async def test_the_plan_that_is_suggested_asks_and_answers_each_question(
    settings: Settings,
) -> None:
    runtime = CopilotRuntime(DemoAdapter(pace=0), settings=settings)
    async with Client(runtime, agent="planner") as client:
        knowledge = runtime.find(Knowledge)
        assert knowledge
        await knowledge.ingest()
        asked = await client.say(f"Plan a trip: {' '.join(EXPECTED)}")
        done = await client.resume({"approved": True})

    assert len(asked.interrupts) == 1
    assert [words for words in EXPECTED.values() if words not in done.text] == [], done.text


def test_the_questions_are_those_that_are_tried_here(settings: Settings) -> None:
    assert settings.knowledge.suggestions == tuple(EXPECTED)


async def test_each_is_answered_with_a_source_that_opens(settings: Settings) -> None:
    async with Client(CopilotRuntime(DemoAdapter(pace=0), settings=settings)) as client:
        for question, words in EXPECTED.items():
            text = (await client.say(question)).text
            link = re.search(r"\]\((/graphql/knowledge/resources/[^)#]+)#here\)", text)

            assert words in text
            assert link is not None
            page = await client.request("GET", link[1], headers={"accept": "text/html"})
            assert page.status == 200


SCHEMA = rdflib.Namespace("https://schema.org/")
THING = rdflib.Namespace(THINGS)


@dataclass(frozen=True)
class Line:
    """What the pages say, and the shapes that were derived from it."""

    data: rdflib.Graph
    shapes: rdflib.Graph


@pytest.fixture(scope="module")
async def ontology_line(anyio_backend: str) -> AsyncIterator[Line]:
    knowledge = Knowledge("memory", sources=[PAGES], base="https://skerryline.example/")
    await knowledge.ingest()
    triples = await knowledge.triples(("?", "?", "?"), limit=100_000)
    text = "\n".join(f"{' '.join(triple)} ." for triple in triples)
    data = rdflib.Graph().parse(data=text, format="nt")
    shapes = rdflib.Graph().parse(data=await knowledge.ontology_turtle(), format="turtle")
    yield Line(data, shapes)
    await knowledge.aclose()


def violations(
    ontology_line: Line, data: rdflib.Graph, *focus: str
) -> set[tuple[Node | None, Node | None]]:
    """Return which things break which constraints; all things, or those named."""
    result: Any = pyshacl.validate(
        data, shacl_graph=ontology_line.shapes, focus_nodes=[*focus] or None, inplace=True
    )
    _, report, _ = result
    return {
        (report.value(it, SH.focusNode), report.value(it, SH.sourceConstraintComponent))
        for it in report.subjects(RDF.type, SH.ValidationResult)
    }


def copy(graph: rdflib.Graph) -> rdflib.Graph:
    return rdflib.Graph() + graph


def test_the_ontology_accepts_the_data(ontology_line: Line) -> None:
    assert len(ontology_line.data) > 1400
    assert violations(ontology_line, copy(ontology_line.data)) == set()


def test_the_ontology_is_valid_shacl(ontology_line: Line) -> None:
    result: Any = pyshacl.validate(
        rdflib.Graph(), shacl_graph=ontology_line.shapes, meta_shacl=True
    )

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
def test_inverses_are_found(ontology_line: Line, one: str, other: str) -> None:
    inverted = {*ontology_line.shapes.objects(None, SH.inversePath)}

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
def test_the_ontology_refuses(ontology_line: Line, name: str) -> None:
    change = BROKEN[name]
    thing, predicate = THING[change.thing], SCHEMA[change.property]
    data = copy(ontology_line.data)
    assert (thing, predicate, None) in data
    data.remove((thing, predicate, None))
    for value in change.values:
        data.add((thing, predicate, value))

    assert (thing, change.breaks) in violations(ontology_line, data, str(thing))
