"""The pages of the example are found by what people ask, without a key and without a network."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from runpy import run_path

import pytest

from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.testing import Client
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
        link = re.search(r"\]\((/graphql/knowledge/resources/[^)]+)\)", answer.text)
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
