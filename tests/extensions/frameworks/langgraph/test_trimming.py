"""What a person has read stays, whatever a graph does with its memory."""

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import pytest

from tests.extensions.frameworks.langgraph.asking import Json, new_thread, shown, texts
from tests.extensions.frameworks.langgraph.conftest import Make
from tests.in_one_test import in_one_test
from tests.wire_agui.http import Browser, text_of, user
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

COUNT: Json = {"name": "count", "description": "Count", "parameters": {"type": "object"}}


async def talk(browser: Browser, thread: str, *questions: Any, **more: Any) -> list[Json]:
    """Ask one question after the other; return the messages of the page."""
    messages: list[Json] = []
    for number, question in enumerate(questions):
        new = user(question, f"user-{number}") if isinstance(question, str) else question(messages)
        messages.append(new)
        answer = await browser.run(
            agent="it", thread=thread, run=f"r{number}", messages=messages, **more
        )
        assert answer.types()[-1] == "RUN_FINISHED"
        messages = shown(messages, answer.events())
    return messages


def calls(messages: Sequence[Json]) -> list[tuple[str, Any]]:
    """Return the ids and arguments of the calls on a page."""
    return [
        (call["id"], json.loads(call["function"]["arguments"]))
        for message in messages
        for call in message.get("toolCalls", ())
    ]


@in_one_test(
    ("graph", "reads"),
    [
        ("summarizing", [1, 3, 2, 2]),  # from the third question on, a summary and the question
        ("trimming", [1, 1, 1, 1]),
        ("condensing", [2, 2, 2, 2]),
        ("clearing", [1, 1, 1, 1]),
    ],
)
async def test_what_a_graph_forgets_stays_on_the_page_and_not_in_its_memory(
    make: Make, graph: str, reads: list[int]
) -> None:
    thread = new_thread()
    async with browsing(agents={"it": make(graph)}) as browser:
        page = await talk(browser, thread, "One", "Two", "Three", "Four")

    said = zip(("One", "Two", "Three", "Four"), reads, strict=True)
    assert texts(page) == [
        text for word, number in said for text in (word, f"{word}? I read {number}.")
    ]


async def test_messages_that_a_graph_stores_again_under_other_ids_are_shown_once(
    make: Make,
) -> None:
    page, said = list[Json](), list[str]()
    thread = new_thread()
    async with browsing(agents={"it": make("rebuilding")}) as browser:
        for word in ("One", "Two", "Two"):
            page.append(user(word, f"user-{len(page)}"))
            answer = await browser.run(agent="it", thread=thread, run=page[-1]["id"], messages=page)
            said.append(text_of(answer.events()))
            page = shown(page, answer.events())

    assert said == ["One? I read 1.", "Two? I read 3.", "Two? I read 5."]
    assert texts(page) == ["One", said[0], "Two", said[1], "Two", said[2]]


async def test_an_empty_answer_is_not_shown_above_its_question(make: Make) -> None:
    async with browsing(agents={"it": make("silent")}) as browser:
        page = await talk(browser, new_thread(), "One", "Two")

    assert texts(page) == ["One", "Two"]


async def test_the_thread_has_what_the_page_shows(make: Make) -> None:
    thread = new_thread()
    async with browsing(agents={"it": make("summarizing")}) as browser:
        page = await talk(browser, thread, "One", "Two", "Three")
        stored = await browser.ask("GET", f"/threads/{quote(thread)}/messages")

    assert texts(stored.json()["messages"]) == texts(page)


async def test_a_question_that_the_graph_has_forgotten_can_be_edited(make: Make) -> None:
    thread = new_thread()
    async with browsing(agents={"it": make("trimming")}) as browser:
        page = await talk(browser, thread, "One", "Two", "Three")
        edited = [*page[:2], user("Deux", "user-1")]
        answer = await browser.run(agent="it", thread=thread, run="again", messages=edited)

    after = texts(shown(edited, answer.events()))
    assert after == ["One", "One? I read 1.", "Deux", "Deux? I read 1."]


async def test_a_page_that_was_loaded_again_gets_the_messages_of_the_graph(make: Make) -> None:
    thread = new_thread()
    async with browsing(agents={"it": make("chat")}) as browser:
        await talk(browser, thread, "One")
        new = [user("Two", "user-2")]
        answer = await browser.run(agent="it", thread=thread, run="again", messages=new)

    after = texts(shown(new, answer.events()))
    assert after == ["One", "You said: One ", "Two", "You said: Two "]


async def test_an_answer_that_the_graph_takes_back_leaves_the_page(make: Make) -> None:
    async with browsing(agents={"it": make("withdrawing")}) as browser:
        page = await talk(browser, new_thread(), "One")

    assert texts(page) == ["One", "I cannot say that."]


async def test_a_call_that_the_graph_edits_is_edited_on_the_page(make: Make) -> None:
    thread = new_thread()
    async with browsing(agents={"it": make("editing")}) as browser:
        page = await talk(browser, thread, "One")
        stored = await browser.ask("GET", f"/threads/{quote(thread)}/messages")

    assert calls(page) == [("call-1", {"secret": "***"})]
    assert b"hunter2" not in stored.body


async def test_messages_for_the_model_alone_are_not_shown(make: Make) -> None:
    thread = new_thread()
    async with browsing(agents={"it": make("whispering")}) as browser:
        page = await talk(browser, thread, "One", "Two")
        replayed = await browser.connect(thread, "it")

    assert texts(page) == ["One", "For you.", "Two", "For you."]
    assert b"secret" not in replayed.body


async def test_an_answer_below_another_key_stays_on_the_page(make: Make) -> None:
    async with browsing(agents={"it": make("diary")}) as browser:
        page = await talk(browser, new_thread(), "One", "Two")

    assert texts(page)[:2] == ["One", "One? I read 1."]
    assert texts(page)[2] == "Two"
    assert len(page) == 4


async def test_calls_with_the_same_id_keep_their_arguments_and_results(make: Make) -> None:
    async with browsing(agents={"it": make("counting")}) as browser:
        page = await talk(browser, new_thread(), "One", "Two")

    expected = [1, 2, 4, 5]
    ids = [id for id, _ in calls(page)]
    results = {one["toolCallId"]: one["content"] for one in page if one["role"] == "tool"}
    assert [arguments["number"] for _, arguments in calls(page)][:2] == expected[:2]
    assert len({*ids}) == len(ids) >= 2
    assert [results[id] for id in ids] == [
        f"counted {arguments['number']}" for _, arguments in calls(page)
    ]


@in_one_test("graph", ["counting_in_browser", "rebuilding_calls"])
async def test_the_page_answers_two_calls_with_the_same_id(make: Make, graph: str) -> None:
    def done(page: Sequence[Json]) -> Json:
        id, arguments = calls(page)[-1]
        content = f"shown {arguments['number']}"
        return {"id": f"done-{len(page)}", "role": "tool", "toolCallId": id, "content": content}

    async with browsing(agents={"it": make(graph)}) as browser:
        page = await talk(browser, new_thread(), "One", done, done, tools=[COUNT])

    assert calls(page) == [("call_0", {"number": 1}), ("call_0-2", {"number": 2})]
    assert texts(page)[-1] == "shown 2!"
