"""`Knowledge`: the pieces together, for Python programs."""

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from copilot_runtime.actions.execute import execute
from copilot_runtime.api import ActionContext
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import CopilotError, Misuse, Refused
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.identifiers import Identifier, shorten_uri
from copilot_runtime.extensions.knowledge.policies import build_actor
from copilot_runtime.extensions.knowledge.resources import Resource
from copilot_runtime.extensions.knowledge.settings import KnowledgeSettings
from copilot_runtime.storage import MemoryStorage
from tests.extensions.knowledge.library import ADA, LIBRARY, WordCounter, library, stocked
from tests.in_one_test import in_one_test
from tests.runs import run_input

pytestmark = pytest.mark.anyio


async def test_a_search_returns_passages_the_best_first(knowledge: Knowledge) -> None:
    first, *_ = await knowledge.search("Books are lent for how many weeks?")

    assert first.title == "House rules"
    assert "four weeks" in first.text
    assert first.url == f"/graphql/knowledge/resources/{shorten_uri(first.id)}#here"
    assert first.score is not None


@in_one_test(
    ("name", "page"),
    [
        ("faq.md", "# FAQ\n\n## How do I reset my password?\n\nOpen Settings, choose Security."),
        (
            "faq.html",
            "<h1>FAQ</h1><h2>How do I reset my password?</h2>Open Settings, choose Security.",
        ),
    ],
)
async def test_a_text_is_found_by_its_heading_and_read_with_it(
    tmp_path: Path, name: str, page: str
) -> None:
    (tmp_path / name).write_text(page, encoding="utf-8")
    knowledge = await stocked(tmp_path)
    (found,) = await knowledge.search("How do I reset my password?", threshold=0.5)
    (resource,) = await knowledge.resources.get([found.id])

    assert found.text == "FAQ \u203a How do I reset my password?\nOpen Settings, choose Security."
    assert resource.content == "Open Settings, choose Security."


@in_one_test(
    ("question", "is_found"),
    [
        ("What must pasword rules contain?", True),
        ("Passwortregeln", True),
        ("Urlaubsanspruch", True),
        ("休暇は何日", True),
        ("What is photosynthesis?", False),
        ("Hauptstadt von Frankreich", False),
        ("天気はどう", False),
        ("what is it", False),
        ("Hello", False),
        ("hello@example.org", True),
    ],
)
async def test_a_question_without_a_word_of_the_documents_finds_nothing(
    tmp_path: Path, question: str, is_found: bool
) -> None:
    page = (
        "A password has a rule. Passwort: 14 Zeichen. Der Urlaub hat 28 Tage. 休暇は二十八日です. "
        "Ask hello@example.org."
    )
    (tmp_path / "rules.txt").write_text(page, encoding="utf-8")
    knowledge = await stocked(tmp_path, embedder="hashing")

    found = await knowledge.search(question)
    everything = await knowledge.search(question, threshold=-1)

    assert (bool(found), len(everything)) == (is_found, 1)


async def test_questions_below_no_title_are_not_below_the_first_of_them(tmp_path: Path) -> None:
    page = "## How do I reset it?\n\nBy the button.\n\n## Where are dogs?\n\nOutside."
    (tmp_path / "faq.md").write_text(page, encoding="utf-8")
    found = await (await stocked(tmp_path)).search("Where are dogs?")

    assert found[0].title == "faq.md, Where are dogs?"
    assert found[0].text == "faq.md \u203a Where are dogs?\nOutside."


async def test_a_heading_that_the_title_repeats_is_read_once(tmp_path: Path) -> None:
    page = "<title>Dogs and cats - Mill</title><h1>Dogs and cats</h1><h2>Dogs</h2>wait outside."
    (tmp_path / "pets.html").write_text(page, encoding="utf-8")
    (found,) = await (await stocked(tmp_path)).search("dogs")

    assert found.text == "Dogs and cats - Mill \u203a Dogs\nwait outside."
    for title in ("Cats", "Cats | Mill", "Mill \u00b7 Cats", "Cats - Mill"):
        (tmp_path / "pets.html").write_text(f"<title>{title}</title><h1>Cats</h1>sleep inside.")
        (found,) = await (await stocked(tmp_path)).search("cats")
        assert found.title == title


async def test_of_several_texts_the_best_match_of_any_counts(knowledge: Knowledge) -> None:
    found = await knowledge.search(["dogs wait", "head librarian"], limit=2)

    assert {passage.title for passage in found} == {"House rules", "Ada Byron"}


async def test_a_search_can_be_for_a_type_and_below_a_resource(knowledge: Knowledge) -> None:
    things = await knowledge.search("library byron", type="common.Message")
    (chunk,) = await knowledge.search("dogs wait outside", limit=1)
    below = await knowledge.search("safe", prefix=f"cld:{chunk.id.rpartition('/')[0]}/")

    assert {passage.title for passage in things} == {"Mill Library", "Ada Byron"}
    assert {passage.title for passage in below} <= {"House rules"}
    with pytest.raises(Misuse, match="names no resource"):
        await knowledge.search("safe", prefix="pages/rules.md")


async def test_tokens_are_counted_over_all_passages(knowledge: Knowledge) -> None:
    (passage,) = await knowledge.search("dogs wait outside", limit=3, max_tokens=6)

    assert passage.text.endswith("…")


async def test_things_are_found_by_patterns_types_and_sparql(knowledge: Knowledge) -> None:
    triples = await knowledge.triples((LIBRARY, "schema:employee", "?"))
    people = await knowledge.find(("?", "rdf:type", "schema:Person"))
    rows = (await knowledge.sparql("SELECT ?n { ?p schema:jobTitle ?n }")).rows

    assert triples == [(f"<{LIBRARY}>", "<https://schema.org/employee>", f"<{ADA}>")]
    assert [passage.title for passage in people] == ["Ada Byron"]
    assert await knowledge.subjects("schema:Person") == {ADA: ("https://schema.org/Person",)}
    assert [str(row["n"]) for row in rows] == ['"head librarian"']


async def test_a_query_cannot_write(knowledge: Knowledge) -> None:
    with pytest.raises(Refused):
        await knowledge.sparql("DELETE WHERE { ?s ?p ?o }")


async def test_a_pattern_that_means_nothing_is_refused(knowledge: Knowledge) -> None:
    with pytest.raises(Misuse):
        await knowledge.triples(("nonsense", "?", "?"))


async def test_a_pattern_may_be_one_text(knowledge: Knowledge) -> None:
    assert [it.title for it in await knowledge.find("? a schema:Person")] == ["Ada Byron"]
    assert await knowledge.triples("? schema:jobTitle ?") == (
        await knowledge.triples(("?", "schema:jobTitle", "?"))
    )


@in_one_test("pattern", ["? ?", ("?", "?"), ("?", "?", 5), 5, None, {"?", "a"}])
async def test_a_pattern_has_three_parts(knowledge: Knowledge, pattern: Any) -> None:
    for query in (knowledge.find, knowledge.triples):
        with pytest.raises(Misuse, match=r"Expected 3 parts|is no pattern of three texts"):
            await query(pattern)


async def test_an_actor_is_no_name(knowledge: Knowledge) -> None:
    actor: Any = "omar"
    for question in (
        knowledge.search("x", actor=actor),
        knowledge.find("? a ?", actor=actor),
        knowledge.recall("x", actor=actor, thread_id="t"),
        knowledge.find_resources(actor=actor),
    ):
        with pytest.raises(Misuse, match="actor is 'omar', and not an Actor") as raised:
            await question
        assert "build_actor(user)" in (raised.value.hint or "")


async def test_the_ontology_has_classes_turtle_and_a_picture(knowledge: Knowledge) -> None:
    classes = (await knowledge.ontology()).classes

    assert {each.name for each in classes} == {"Library", "Person"}
    assert "schema:PersonShape" in await knowledge.ontology_turtle()
    assert (await knowledge.picture()).startswith("<svg")


async def test_an_update_says_what_it_did_and_does_nothing_twice(pages: Path) -> None:
    knowledge = library(pages)
    steps: list[str] = []
    first = await knowledge.ingest(progress=lambda step, done, total: steps.append(step))
    again = await knowledge.ingest()

    assert first.sources is not None
    assert first.sources.resources == 4
    assert [*dict.fromkeys(steps)] == ["read", "store", "embed", "link"]
    assert again.sources is not None
    assert (again.sources.unchanged, again.sources.resources) == (3, 0)
    assert (again.vectors.added, again.graph.added) == (0, 0)


async def test_files_can_be_named_for_one_update(pages: Path) -> None:
    knowledge = library(pages, sources=[])
    await knowledge.ingest(pages / "rules.md")

    assert [source.name.rpartition("/")[2] for source in await knowledge.list_sources()] == [
        "rules.md"
    ]


async def test_two_updates_at_once_take_turns(pages: Path) -> None:
    knowledge = library(pages)
    updates = await asyncio.gather(knowledge.ingest(), knowledge.ingest())

    assert sorted(it.sources.resources for it in updates if it.sources) == [0, 4]


async def test_what_is_closed_can_be_used_again(pages: Path) -> None:
    storage = MemoryStorage()
    knowledge = await stocked(pages, storage=storage)
    await knowledge.aclose()

    assert (await knowledge.search("dogs wait outside"))[0].title == "House rules"
    await knowledge.aclose()
    await knowledge.aclose()


async def test_the_state_of_an_update_in_the_background_is_seen(pages: Path) -> None:
    knowledge = library(pages)
    assert knowledge.status().state == "closed"
    knowledge.start()
    assert knowledge.status().state == "updating"
    found = await knowledge.search("dogs wait outside")  # waits, for there is nothing yet

    assert found[0].title == "House rules"
    assert knowledge.status().state == "ready"
    assert knowledge.status().resources == 4
    await knowledge.aclose()
    assert knowledge.status().state == "closed"


class Slow(WordCounter):
    """An embedder that waits with texts about zebras."""

    def __init__(self) -> None:
        super().__init__()
        self.free = asyncio.Event()

    async def embed(self, texts):  # type: ignore[no-untyped-def]
        if any("zebra" in text for text in texts):
            await self.free.wait()
        return await super().embed(texts)


async def test_a_search_during_a_later_update_does_not_wait(pages: Path) -> None:
    embedder = Slow()
    storage = MemoryStorage()
    await (await stocked(pages, storage=storage)).aclose()
    (pages / "zebra.md").write_text("# Zebras\n\nA zebra has stripes.", encoding="utf-8")
    knowledge = library(pages, storage=storage, embedder=embedder)
    knowledge.start()
    found = await knowledge.search("dogs wait outside")

    assert found[0].title == "House rules"
    assert knowledge.status().state == "updating"
    embedder.free.set()
    await knowledge.aclose()


async def test_no_search_waits_for_a_first_update_that_takes_long(
    pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pages / "zebra.md").write_text("# Zebras\n\nA zebra has stripes.", encoding="utf-8")
    embedder = Slow()
    knowledge = library(pages, embedder=embedder)
    knowledge.start()
    now = monotonic()
    monkeypatch.setattr("copilot_runtime.extensions.knowledge.updater.monotonic", lambda: now + 601)
    found = [await knowledge.search("dogs wait outside") for _ in range(2)]

    assert found == [[], []]  # nothing is there yet
    assert knowledge.status().state == "updating"
    search = next(tool for tool in knowledge.tools() if tool.name == "search_content")
    context = ActionContext(thread_id="t", run_id="r", call_id="c", properties={}, headers={})
    answer = (await execute(search, '{"input": "dogs"}', context, timeout=10)).result
    assert answer.startswith("No results found. Documents are being read at the moment")
    embedder.free.set()
    await knowledge.aclose()


async def test_who_may_not_read_a_resource_gets_none(pages: Path) -> None:
    knowledge = await stocked(pages)
    owned = Resource(Identifier("common.Message", "m1", "common.User.ann"), "mine")
    await knowledge.resources.put(owned)

    assert await knowledge.get(owned.uri, actor=build_actor("ann")) == owned
    assert await knowledge.get("common.Message.none", actor=build_actor("ann")) is None
    assert await knowledge.get(owned.uri, actor=build_actor("eve")) is None


async def test_resources_are_listed_for_who_may_list_them(pages: Path) -> None:
    knowledge = await stocked(pages)
    await knowledge.resources.put(
        Resource(Identifier("common.Message", "m1", "common.User.ann"), "mine")
    )

    assert len(await knowledge.find_resources()) == 5
    assert len(await knowledge.find_resources(actor=build_actor("ann"))) == 5
    assert len(await knowledge.find_resources(actor=build_actor("eve"))) == 4
    assert len(await knowledge.find_resources(type="common.Chunk")) == 2


async def test_without_threads_there_is_nothing_to_recall(knowledge: Knowledge) -> None:
    actor = build_actor("ann", "t")

    assert await knowledge.recall("umbrella", actor=actor, thread_id="t") == []


async def test_a_title_says_where_in_a_document_a_text_is(pages: Path) -> None:
    (pages / "guide.md").write_text(
        "# Guide\n\nAbout this.\n\n## Parking\n\nBicycles stand behind the mill.\n", "utf-8"
    )
    knowledge = await stocked(pages)

    assert (await knowledge.search("bicycles behind the mill"))[0].title.startswith("Guide, ")


async def test_a_thing_without_a_name_is_called_by_the_title_of_its_page(pages: Path) -> None:
    (pages / "faq.html").write_text(
        """<title>Lost things</title><main itemscope itemtype="https://schema.org/Answer">
        <p itemprop="text">Umbrellas are lent by the porter.</p></main>""",
        encoding="utf-8",
    )
    knowledge = await stocked(pages)

    assert (await knowledge.search("umbrellas porter"))[0].title == "Lost things"


async def test_a_question_is_read_with_its_answer_which_has_no_name(pages: Path) -> None:
    (pages / "faq.html").write_text(
        """<main itemscope itemtype="https://schema.org/Question" itemid="https://x.example/q">
        <h1 itemprop="name">Where can I borrow an umbrella?</h1>
        <div itemprop="acceptedAnswer" itemscope itemtype="https://schema.org/Answer">
        <p itemprop="text">At the porter, against a deposit.</p></div></main>""",
        encoding="utf-8",
    )
    knowledge = await stocked(pages)
    first, *_ = await knowledge.search("Where can I borrow an umbrella?")
    retriever = knowledge.retriever()
    assert retriever is not None
    question = TextMessage(id="1", role="user", content="Has the porter an umbrella to lend?")
    retrieved = await retriever.retrieve(replace(run_input(), messages=[question]))

    assert first.title == "Where can I borrow an umbrella?"
    assert "against a deposit" in first.text
    assert [passage.title for passage in retrieved] == [first.title]  # the answer is not repeated


async def test_what_a_thing_refers_to_is_read_by_its_name(pages: Path) -> None:
    knowledge = await stocked(pages)
    (library,) = await knowledge.find((LIBRARY, "schema:employee", "?"))
    assert "employee: Ada Byron" in library.text

    resource = await knowledge.get(library.id)
    assert resource is not None
    assert "employee: Ada Byron" in (await knowledge.read(resource)).text


async def test_a_name_that_somebody_may_not_read_is_not_told(pages: Path) -> None:
    policy = pages.parent / "policy.yml"
    policy.write_text("default: allow", "utf-8")
    knowledge = await stocked(pages, policy=policy)
    (library,) = await knowledge.find((LIBRARY, "schema:employee", "?"))
    (ada,) = await knowledge.find((ADA, "rdf:type", "?"))
    policy.write_text(
        f"default: allow\nrules:\n- {{deny: read, users: eve, resources: {ada.id}}}\n", "utf-8"
    )
    guarded = Knowledge(knowledge.storage, embedder=WordCounter(), policy=policy)
    (read,) = await guarded.find((LIBRARY, "schema:name", "?"), actor=build_actor("eve"))

    assert read.id == library.id
    assert "Ada Byron" not in read.text


async def test_what_has_nothing_in_common_with_a_question_is_not_found(pages: Path) -> None:
    knowledge = await stocked(pages)

    assert await knowledge.search("umbrella") == []
    assert len(await knowledge.search("umbrella", threshold=0)) == 4
    assert [it.title for it in await knowledge.search("dogs")] == ["House rules"]


async def test_a_policy_file_decides_what_is_found(pages: Path) -> None:
    policy = pages.parent / "policy.yml"
    policy.write_text(
        "default: deny\nrules:\n- {allow: read, users: ann, types: common.Message}\n", "utf-8"
    )
    knowledge = await stocked(pages, policy=policy)

    ann = await knowledge.search("library byron dogs", actor=build_actor("ann"))
    assert {passage.title for passage in ann} == {"Mill Library", "Ada Byron"}
    assert await knowledge.search("library byron dogs", actor=build_actor("eve")) == []
    assert await knowledge.list_sources(actor=build_actor("eve")) == []


async def test_a_provider_that_fails_leaves_the_rest_in_place(pages: Path) -> None:
    class Broken(WordCounter):
        async def embed(self, texts):  # type: ignore[no-untyped-def]
            raise CopilotError("The provider has no such model.")

    knowledge = library(pages, embedder=Broken())
    report = await knowledge.ingest()

    assert len(report.vectors.failed) == 4
    assert len(await knowledge.find(("?", "rdf:type", "?"))) == 2
    assert "no such model" in str(report.vectors.failed)


async def test_the_hashing_embedder_needs_no_key(pages: Path) -> None:
    knowledge = await stocked(pages, embedder="hashing")

    assert (await knowledge.search("How many weeks are books lent?"))[0].title == "House rules"


async def test_options_of_an_embedder_are_those_of_the_settings(pages: Path) -> None:
    settings = KnowledgeSettings(embedder_options={"dimensions": 64})
    knowledge = Knowledge(MemoryStorage(), sources=[pages], settings=settings)

    assert "64" in knowledge.embedder.model


def test_a_server_without_knowledge_imports_nothing_of_it() -> None:
    code = """
import sys
from starlette.testclient import TestClient
from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
runtime = CopilotRuntime(ScriptedAdapter(), settings=Settings(threads="memory"))
with TestClient(runtime.app()) as client:
    assert client.post("/graphql", json={"query": "{ hello }"}).status_code == 200
heavy = {
        *("numpy", "pyoxigraph", "rdflib", "lxml", "pypdf"),
        "copilot_runtime.extensions.knowledge.knowledge",
    }
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_making_a_runtime_with_knowledge_opens_nothing(pages: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    code = f"""
import sys
from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
settings = Settings(knowledge={{"storage": "local:{store}", "sources": ["{pages}"]}})
CopilotRuntime(ScriptedAdapter(), settings=settings)
print(sorted({{"numpy", "pyoxigraph", "rdflib", "lxml", "pypdf"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
    assert not store.exists()


@in_one_test("uri", ["x" * 6000, "ü" * 200, "\x00", "../catalog"])
async def test_a_name_that_no_file_can_have_is_that_of_no_resource(
    tmp_path: Path, uri: str
) -> None:
    knowledge = Knowledge(f"local:{tmp_path}")
    await knowledge.resources.put(Resource(Identifier("common.Message", "m1"), "Hello"))
    assert await knowledge.get(uri) is None
    await knowledge.aclose()
