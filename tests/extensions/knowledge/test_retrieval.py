"""What is searched for before a question is answered."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime.api import Passage
from copilot_runtime.api.messages import ResultMessage, TextMessage
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.retrieval import find_queries, rank_passages
from copilot_runtime.extensions.knowledge.settings import KnowledgeSettings
from copilot_runtime.extensions.knowledge.tokens import count_tokens
from tests.extensions.knowledge.library import stocked
from tests.in_one_test import in_one_test
from tests.runs import run_input

pytestmark = pytest.mark.anyio


def said(*texts: str) -> list[Any]:
    """Return a conversation: a person and an assistant in turns."""
    return [
        TextMessage(id=str(number), role="assistant" if number % 2 else "user", content=text)
        for number, text in enumerate(texts)
    ]


def test_the_last_question_is_searched_for() -> None:
    question = "When does the library in the old mill open?"

    assert find_queries(said("Hello there, my friend", "Hi", question)) == [question]


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
