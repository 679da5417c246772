"""The actions by which models and agents use knowledge."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime.actions.execute import execute
from copilot_runtime.api import Action, ActionContext, Passage
from copilot_runtime.api.messages import ResultMessage, TextMessage
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.retrieval import find_queries, rank_passages
from copilot_runtime.extensions.knowledge.settings import KNOWLEDGE_TOOLS, KnowledgeSettings
from copilot_runtime.extensions.knowledge.tokens import count_tokens
from tests.extensions.knowledge.library import ADA, LIBRARY, stocked
from tests.in_one_test import in_one_test
from tests.runs import run_input

pytestmark = pytest.mark.anyio


def tool(knowledge: Knowledge, name: str) -> Action:
    return next(action for action in knowledge.tools() if action.name == name)


async def call(knowledge: Knowledge, name: str, arguments: Any = None, user: str = "") -> str:
    context = ActionContext(
        thread_id="t", run_id="r", call_id="c", properties={}, headers={}, user=user or None
    )
    text = json.dumps({} if arguments is None else arguments)
    return (await execute(tool(knowledge, name), text, context, timeout=10)).result


async def results(knowledge: Knowledge, name: str, arguments: Mapping[str, Any]) -> Any:
    return json.loads(await call(knowledge, name, arguments))["results"]


async def test_a_search_returns_the_nearest_resources_with_their_sources(
    knowledge: Knowledge,
) -> None:
    found = await results(knowledge, "search_content", {"input": ["books are lent how long"]})

    assert found[0]["title"] == "House rules"
    assert "four weeks" in found[0]["text"]
    assert found[0]["url"].startswith("/graphql/knowledge/resources/")
    assert 0 < found[0]["score"] <= 1


async def test_a_search_leaves_out_what_is_far_worse_than_the_best(pages: Path) -> None:
    for number in range(8):
        text = f"# Note {number}\n\nmill is old. {'History turns wheels of wood. ' * 3}"
        (pages / f"note{number}.md").write_text(text, encoding="utf-8")
    knowledge = await stocked(pages)
    question = "Why do dogs wait outside of it?"
    found = await results(knowledge, "search_content", {"input": [question]})

    assert len(await knowledge.search(question, limit=20)) > 8
    assert found[0]["title"] == "House rules"
    assert not [it for it in found if it["title"].startswith("Note")]


async def test_a_search_ranks_as_the_retrieval_of_the_chat_does(pages: Path) -> None:
    for number in (1100, 1200, 1300):
        text = f"# Barrel\n\nBarrel number {number} is of oak, and holds the beer of the year."
        (pages / f"barrel{number}.md").write_text(text, encoding="utf-8")
    knowledge = await stocked(pages)
    question = "What is in barrel number 1200?"
    retriever = knowledge.retriever()
    assert retriever is not None
    message = TextMessage(id="1", role="user", content=question)
    run = replace(run_input(), messages=[message])
    found = await results(knowledge, "search_content", {"input": [question]})
    retrieved = [it.id for it in await retriever.retrieve(run)]

    assert "1200" in found[0]["text"]
    assert [it["id"] for it in found][: len(retrieved)] == retrieved


async def test_each_text_of_a_search_finds_what_fits_it(knowledge: Knowledge) -> None:
    texts = ["Dogs wait outside. Books are lent for four weeks.", "number of the safe"]
    found = await results(knowledge, "search_content", {"input": texts})

    assert [it["title"] for it in found][:2] == ["House rules", "Secret"]


async def test_one_text_is_as_good_as_a_list(knowledge: Knowledge) -> None:
    many = await results(knowledge, "search_content", {"input": ["dogs"]})

    assert await results(knowledge, "search_content", {"input": "dogs"}) == many


@in_one_test("given", [None, 5, [], [""], [5], ["a"] * 11, {"a": 1}])
async def test_what_cannot_be_searched_for_is_told_to_the_model(
    knowledge: Knowledge, given: Any
) -> None:
    answer = json.loads(await call(knowledge, "search_content", {"input": given}))

    assert "input: write" in answer["error"]["message"]


async def test_a_pattern_returns_triples_and_the_resources_that_hold_them(
    knowledge: Knowledge,
) -> None:
    pattern = {"subject": "?", "predicate": "schema:employee", "object": "?"}
    answer = json.loads(await call(knowledge, "query_by_pattern", pattern))

    assert answer["triples"] == [f"<{LIBRARY}>\t<https://schema.org/employee>\t<{ADA}>"]
    assert [result["title"] for result in answer["results"]] == ["Mill Library"]


async def test_parts_of_a_pattern_that_are_left_out_are_anything(knowledge: Knowledge) -> None:
    answer = json.loads(await call(knowledge, "query_by_pattern", {"subject": ADA}))

    assert len(answer["triples"]) == 3


async def test_nothing_found_is_said_in_a_sentence(knowledge: Knowledge) -> None:
    pattern = {"predicate": "schema:birthDate"}

    assert await call(knowledge, "query_by_pattern", pattern) == "No results found."
    assert await call(knowledge, "get_subjects", {"type": "schema:Car"}) == "No results found."


@in_one_test(
    ("pattern", "hint"),
    [
        ({"subject": "Lena"}, "'Lena' is none. Write it as <https://…>, urn:… or schema:name"),
        ({"object": '"a"b"@@'}, 'Write it as "text", "text"@en or "5"^^xsd:integer.'),
        ({"object": '"5"^^integer'}, "'integer' is no datatype. For example xsd:integer."),
    ],
)
async def test_a_model_is_told_how_to_write_what_it_wrote_wrong(
    knowledge: Knowledge, pattern: Mapping[str, str], hint: str
) -> None:
    answer = json.loads(await call(knowledge, "query_by_pattern", pattern))

    assert hint in answer["error"]["message"]


@in_one_test(
    ("name", "arguments"),
    [
        ("query_by_pattern", {"predicate": "rdf:type", "object": "schm:Person"}),
        ("query_by_pattern", {"subject": "schm:Ada"}),
        ("get_subjects", {"type": "schm:Person"}),
    ],
)
async def test_a_prefix_that_there_is_not_is_named_when_nothing_is_found(
    knowledge: Knowledge, name: str, arguments: Mapping[str, str]
) -> None:
    assert (await call(knowledge, name, arguments)).startswith(
        "No results found. There is no prefix 'schm'. Did you mean schema:? Known are "
    )


@in_one_test("subject", ["urn:x:y", "https://a.example/b", "<foo:bar>", "schema:X"])
async def test_an_iri_is_taken_for_no_prefix(knowledge: Knowledge, subject: str) -> None:
    assert await call(knowledge, "query_by_pattern", {"subject": subject}) == "No results found."


async def test_a_model_is_not_told_where_a_storage_is(
    knowledge: Knowledge, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*arguments: Any, **options: Any) -> Any:
        raise CopilotError("/srv/secret failed.", hint="Mount it.", public="The storage failed.")

    monkeypatch.setattr(knowledge, "search", fail)
    answer = json.loads(await call(knowledge, "search_content", {"input": ["dogs"]}))

    assert answer["error"]["message"] == "The storage failed."


async def test_the_ontology_is_turtle(knowledge: Knowledge) -> None:
    text = await call(knowledge, "get_ontology")

    assert "schema:LibraryShape a sh:NodeShape" in text
    assert "schema:PersonShape" in text


async def test_an_ontology_that_is_too_long_ends_with_a_whole_shape(pages: Path) -> None:
    whole = await (await stocked(pages)).ontology_turtle()
    settings = KnowledgeSettings(tool_tokens=count_tokens(whole) - 20)
    knowledge = await stocked(pages, settings=settings)
    text = await call(knowledge, "get_ontology")

    assert "schema:LibraryShape" in text
    assert "PersonShape" not in text
    assert "1 more shapes" in text


async def test_subjects_are_lines_with_their_types(knowledge: Knowledge) -> None:
    assert (await call(knowledge, "get_subjects")).splitlines() == [
        f"{ADA}\thttps://schema.org/Person",
        f"{LIBRARY}\thttps://schema.org/Library",
    ]
    assert await call(knowledge, "get_subjects", {"type": "schema:Person"}) == (
        f"{ADA}\thttps://schema.org/Person"
    )


async def test_a_long_list_of_subjects_says_how_many_are_left_out(pages: Path) -> None:
    knowledge = await stocked(pages, settings=KnowledgeSettings(tool_tokens=25))

    assert "(1 more are left out" in await call(knowledge, "get_subjects")


@in_one_test("tokens", [30, 60, 120])
async def test_a_result_is_no_longer_than_the_settings_allow(pages: Path, tokens: int) -> None:
    long = pages / "long.md"
    long.write_text("# Long\n\n" + "The history of the mill is long. " * 200, encoding="utf-8")
    knowledge = await stocked(pages, settings=KnowledgeSettings(tool_tokens=tokens))
    found = await results(knowledge, "search_content", {"input": ["history of the mill"]})

    assert found
    assert sum(count_tokens(result["text"]) for result in found) <= tokens


async def test_a_tool_shows_nothing_that_its_caller_may_not_read(pages: Path) -> None:
    policy = pages.parent / "policy.yml"
    policy.write_text("default: deny\n", encoding="utf-8")
    knowledge = await stocked(pages, policy=policy)

    assert await call(knowledge, "search_content", {"input": ["dogs"]}, "eve") == (
        "No results found."
    )
    assert await call(knowledge, "query_by_pattern", {}, "eve") == "No results found."
    assert await call(knowledge, "get_subjects", {}, "eve") == "No results found."
    assert "Library" not in await call(knowledge, "get_ontology", {}, "eve")


def test_the_settings_say_which_tools_there_are(pages: Path) -> None:
    names = ("get_ontology", "search_content")
    knowledge = Knowledge("memory", sources=[pages], settings=KnowledgeSettings(tools=names))

    assert [action.name for action in knowledge.tools()] == [*names]


def test_every_tool_says_what_for_when_how_and_what_comes_back(pages: Path) -> None:
    tools = Knowledge("memory", sources=[pages]).tools()

    assert tuple(action.name for action in tools) == KNOWLEDGE_TOOLS
    for action in tools:
        heads = [part.partition(":")[0] for part in action.description.split("\n\n")]
        assert heads == ["PURPOSE", "WHEN TO USE", "HOW TO USE", "RETURNS"]
        assert action.parameters["type"] == "object"


def said(*texts: str) -> list[Any]:
    """Return a conversation: a person and an assistant in turns."""
    return [
        TextMessage(id=str(number), role="assistant" if number % 2 else "user", content=text)
        for number, text in enumerate(texts)
    ]


def test_the_last_question_is_searched_for() -> None:
    question = "When does the library in the old mill open?"

    assert find_queries(said("Hello there, my friend", "Hi", question)) == [question]


@in_one_test(
    ("question", "queries"),
    [
        ("Who is Ada, and where do dogs wait?", ["Who is Ada", "where do dogs wait?"]),
        ("Do dogs wait outside? Who is Ada?", ["Do dogs wait outside?", "Who is Ada?"]),
        ("Who is Ada and where does she wait?", []),
    ],
)
def test_each_question_that_stands_alone_is_searched_for(question: str, queries: list[str]) -> None:
    assert find_queries(said(question)) == [question, *queries]


def test_an_accent_makes_no_other_word() -> None:
    deck = Passage(id="d", text="The café is open.", score=0.2)
    hold = Passage(id="h", text="The hold is closed.", score=0.3)

    assert rank_passages(["cafe"], [hold, deck])[0] == deck


@in_one_test("question", ["And on Sundays?", "Who of the people works in there?"])
def test_a_question_that_refers_to_the_one_before_is_searched_for_with_it(question: str) -> None:
    before = "When does the library in the old mill open?"

    assert find_queries(said(before, "At nine.", question)) == [question, f"{before}\n{question}"]


def test_results_of_actions_are_no_questions() -> None:
    result = ResultMessage(id="r", call_id="c", name="paint", result="red")

    assert find_queries([*said("Paint the door of the mill red, please"), result]) == [
        "Paint the door of the mill red, please"
    ]


@in_one_test("messages", [[], said("  ")])
def test_without_a_question_nothing_is_searched_for(messages: list[Any]) -> None:
    assert find_queries(messages) == []


def test_of_a_long_text_the_beginning_is_searched_for() -> None:
    assert len(find_queries(said("word " * 10_000))[0]) <= 2000


async def retrieve(knowledge: Knowledge, *texts: str, **more: Any) -> list[str]:
    retriever = knowledge.retriever()
    assert retriever is not None
    run = replace(run_input(), messages=said(*texts), **more)
    return [passage.title for passage in await retriever.retrieve(run)]


async def test_the_best_passage_comes_first(knowledge: Knowledge) -> None:
    titles = await retrieve(knowledge, "For how many weeks are books lent?")

    assert titles[0] == "House rules"


async def test_nothing_is_retrieved_where_nobody_asked(knowledge: Knowledge) -> None:
    assert await retrieve(knowledge) == []


async def test_what_is_asked_in_passing_is_found_by_the_question_before(
    knowledge: Knowledge,
) -> None:
    titles = await retrieve(knowledge, "Where do dogs wait?", "Outside.", "Why is that so?")

    assert titles[0] == "House rules"


async def test_a_short_question_about_something_else_finds_that_as_well(tmp_path: Path) -> None:
    (tmp_path / "hours.md").write_text(
        "When is the rye loaf baked? The rye loaf is baked at five.", "utf-8"
    )
    (tmp_path / "staff.md").write_text(
        "Mara Holt came from Leeds in 1990, sold bread, and became head baker.", "utf-8"
    )
    knowledge = await stocked(tmp_path)
    before, question = "When is the rye loaf baked?", "Who became head baker?"

    assert await retrieve(knowledge, question) == ["staff.md"]
    assert "staff.md" in await retrieve(knowledge, before, "Early.", question)


async def test_the_settings_say_how_much_is_retrieved(pages: Path) -> None:
    settings = KnowledgeSettings(retrieval_limit=1, retrieval_tokens=5)
    knowledge = await stocked(pages, settings=settings)
    retriever = knowledge.retriever()
    assert retriever is not None
    run = replace(run_input(), messages=said("The library opens when?"))
    (passage,) = await retriever.retrieve(run)

    assert count_tokens(passage.text) <= 5


async def test_a_passage_that_is_less_alike_than_the_threshold_is_none(pages: Path) -> None:
    knowledge = await stocked(pages, settings=KnowledgeSettings(retrieval_threshold=0.99))

    assert await retrieve(knowledge, "Where do dogs wait?") == []


def test_of_passages_that_are_alike_the_one_with_the_rare_words_comes_first() -> None:
    passages = [
        Passage(id="a", text="The captains of the ships are kind.", score=0.4),
        Passage(id="b", text="The captain of the Heron is Ingrid.", score=0.3),
        Passage(id="c", text="All ships are in the harbour.", score=0.35),
    ]
    ranked = rank_passages(["Who is the captain of the Heron?"], passages)

    assert ranked[0].id == "b"
    assert ranked[0].score == 0.3  # the score stays what the search has found


def test_nothing_is_ranked_where_nothing_was_found() -> None:
    assert rank_passages(["Who?"], []) == []


async def test_what_is_far_less_alike_than_the_best_is_left_out(pages: Path) -> None:
    settings = KnowledgeSettings(retrieval_threshold=None)
    knowledge = await stocked(pages, settings=settings)

    assert await retrieve(knowledge, "For how many weeks are books lent?") == ["House rules"]


async def test_passages_are_those_that_the_person_may_read(pages: Path) -> None:
    policy = pages.parent / "policy.yml"
    policy.write_text("default: deny\n", encoding="utf-8")
    knowledge = await stocked(pages, policy=policy)

    assert await retrieve(knowledge, "Where do dogs wait?", user="eve") == []


def test_retrieval_can_be_switched_off(pages: Path) -> None:
    settings = KnowledgeSettings(retrieval=False)

    assert Knowledge("memory", sources=[pages], settings=settings).retriever() is None
