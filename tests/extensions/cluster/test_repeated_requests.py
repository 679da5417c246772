"""A request that comes again, with the id of its run: the agent runs once, whoever gets it."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime import Settings
from copilot_runtime.adapters.scripted import Gate
from tests.extensions.cluster.sharing import sharing
from tests.wire_agui.http import text_of, user
from tests.wire_agui.server import Parrot, browsing
from tests.wire_agui.strangers import by_token

pytestmark = pytest.mark.anyio


async def test_it_follows_the_run_that_another_server_began(shared: Mapping[str, Any]) -> None:
    gate, idle = Gate(), Parrot()
    async with (
        sharing(shared, Parrot("one two", gate=gate), idle) as (first, second),
        first.running(run="r1") as asked,
    ):
        gate.release(2)
        await asked.until("TEXT_MESSAGE_CONTENT")
        async with second.running(run="r1") as again:
            await again.until("TEXT_MESSAGE_CONTENT")
            gate.release(9)
            followed = await again.rest()
        own = await asked.rest()
        late = (await second.run(run="r1")).events()

    assert followed == own
    assert (text_of(late), late[-1]["type"]) == ("one two", "RUN_FINISHED")
    assert idle.requests == []


async def test_two_servers_that_get_it_at_the_same_time_run_it_once(
    shared: Mapping[str, Any],
) -> None:
    models = (Parrot("one"), Parrot("one"))
    async with sharing(shared, *models) as browsers:
        answers = await asyncio.gather(*(one.run(run="r1") for one in browsers for _ in range(3)))
        stored = (await browsers[0].connect()).events()

    assert {text_of(answer.events()) for answer in answers} == {"one"}
    assert sum(len(model.requests) for model in models) == 1
    assert [event["type"] for event in stored].count("RUN_STARTED") == 1


async def test_it_finds_its_answer_after_a_restart(tmp_path: Path) -> None:
    settings = Settings(threads=f"sqlite:{tmp_path / 'threads.db'}")
    async with browsing(Parrot("one"), settings=settings) as browser:
        first = (await browser.run(run="r1")).events()
    model = Parrot()
    async with browsing(model, settings=settings) as browser:
        again = (await browser.run(run="r1")).events()

    assert (text_of(again), again[0], again[-1]) == ("one", first[0], first[-1])
    assert model.requests == []


async def test_it_waits_with_the_question_that_waits_for_its_turn(
    shared: Mapping[str, Any],
) -> None:
    gate, model = Gate(), Parrot("two")
    models = (Parrot("one", gate=gate), model)
    question = {"run": "r2", "messages": [user("Next", "user-2")]}
    async with sharing(shared, *models, when_busy="queue") as (first, second):
        async with first.running(run="r1") as asked:
            await asked.next()
            waiting = [asyncio.create_task(second.run(**question)) for _ in range(2)]
            gate.release(9)
            await asked.rest()
        answers = [text_of((await task).events()) for task in waiting]

    assert (answers, len(model.requests)) == (["two", "two"], 1)


async def test_another_user_with_the_same_ids_is_answered_by_a_run_of_their_own(
    shared: Mapping[str, Any],
) -> None:
    models = (Parrot(), Parrot())
    options = {"authenticate": by_token}
    async with sharing(shared, *models, options=options) as (first, second):
        mine = await first.signed_in("ada").run(run="r1", messages=[user("a secret")])
        theirs = await second.signed_in("eve").run(run="r1", messages=[user("a secret")])

    assert "a secret" in text_of(mine.events())
    assert theirs.events()[-1]["type"] == "RUN_FINISHED"
    assert [len(model.requests) for model in models] == [1, 1]


async def test_another_question_with_the_id_of_a_run_is_another_run(
    shared: Mapping[str, Any],
) -> None:
    async with sharing(shared, Parrot(), Parrot()) as (first, second):
        one = await first.run(run="r1", messages=[user("One", "user-1")])
        other = await second.run(run="r1", messages=[user("Other", "user-2")])

    assert text_of(one.events()) == "You said One"
    assert text_of(other.events()) == "You said Other"


async def test_a_question_that_was_stopped_while_waiting_is_not_restarted_by_a_retry(
    shared: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.transports.agui.endpoint._SOON", 0.01)
    models = (Parrot("one", gate=Gate()), Parrot("two"))
    question = {"run": "r2", "messages": [user("Next", "user-2")]}
    async with (
        sharing(shared, *models, when_busy="queue") as (first, second),
        first.running(run="r1") as asked,
    ):
        await asked.next()
        async with second.running(**question) as waiting, second.running(**question) as again:
            for stream in (waiting, again):
                await stream.to_comment()
            await first.stop(body={"runId": "r2"})
            ends = [(await stream.rest())[-1] for stream in (waiting, again)]
        ends.append((await second.run(**question)).events()[-1])

    assert [(end["type"], end["code"]) for end in ends] == [("RUN_ERROR", "abort")] * 3
    assert models[1].requests == []


async def test_a_question_of_a_deleted_conversation_is_not_retried(
    shared: Mapping[str, Any],
) -> None:
    models = (Parrot(), Parrot())
    async with sharing(shared, *models) as (first, second):
        await first.run(run="r1", messages=[user("One", "user-1")])
        await second.ask("DELETE", "/threads/t")
        again = (await first.run(run="r1", messages=[user("One", "user-1")])).events()
        page = await second.ask("GET", "/threads?agentId=default")
        other = (await second.run(run="r2", messages=[user("Other", "user-2")])).events()
        late = (await second.run(run="r1", messages=[user("One", "user-1")])).events()

    assert [(event["type"], event["code"]) for event in (*again, *late)] == [
        ("RUN_ERROR", "NOT_FOUND")
    ] * 2
    assert "was deleted" in again[0]["message"]
    assert page.json()["threads"] == []
    assert text_of(other) == "You said Other"
    assert [len(model.requests) for model in models] == [1, 1]
