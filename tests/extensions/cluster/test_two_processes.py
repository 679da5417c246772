"""Servers that share a store of threads: any of them may follow, stop and delete any run."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest

from copilot_runtime import RunInput, Settings
from copilot_runtime.adapters.scripted import Gate
from copilot_runtime.api.hooks import Hooks
from copilot_runtime.runtime.conversations import OPENED, Conversations
from copilot_runtime.threads.database import DatabaseThreads
from tests.extensions.cluster.sharing import sharing
from tests.wire_agui.http import text_of, user
from tests.wire_agui.server import Parrot, browsing

pytestmark = pytest.mark.anyio


async def test_a_run_is_followed_at_another_server_while_it_goes_on(
    shared: Mapping[str, Any],
) -> None:
    gate = Gate()
    async with (
        sharing(shared, Parrot("one two", gate=gate), Parrot()) as (first, second),
        first.running() as asked,
    ):
        gate.release(2)
        await asked.until("TEXT_MESSAGE_CONTENT")
        async with second.connecting() as reader:
            await reader.until("TEXT_MESSAGE_CONTENT")
            gate.release(9)
            followed = await reader.rest()
        own = await asked.rest()

    assert text_of(followed) == text_of(own) == "one two"
    assert followed[-1]["type"] == "RUN_FINISHED"


async def test_a_run_is_stopped_at_another_server(shared: Mapping[str, Any]) -> None:
    gate = Gate()
    async with (
        sharing(shared, Parrot("one", gate=gate), Parrot()) as (first, second),
        first.running(thread="t") as asked,
    ):
        gate.release(2)
        await asked.until("TEXT_MESSAGE_CONTENT")
        answer = await second.ask("POST", "/agent/default/stop/t")
        events = await asked.rest()

    assert answer.json()["stopped"] is True
    assert events[-1]["type"] == "RUN_ERROR"


async def test_a_reader_elsewhere_gets_every_event_that_the_owner_shows(
    shared: Mapping[str, Any],
) -> None:
    words = [f"w{number} " for number in range(300)]
    async with (
        sharing(shared, Parrot(*words), Parrot()) as (first, second),
        first.running() as asked,
    ):
        await asked.next()
        followed = (await second.connect()).events()
        own = await asked.rest()

    assert text_of(followed) == text_of(own) == "".join(words)


async def test_readers_of_a_run_do_not_make_the_store_collect_what_its_log_has(
    shared: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    async with (
        sharing(shared, Parrot("one", gate=gate), Parrot()) as (first, second),
        first.running() as asked,
    ):
        await asked.next()
        monkeypatch.delattr(DatabaseThreads, "runs")
        async with first.connecting() as here, second.connecting() as elsewhere:
            await here.next()
            await elsewhere.next()
            gate.release(9)
            texts = [text_of(await reader.rest()) for reader in (asked, here, elsewhere)]

    assert texts == ["one"] * 3


async def test_many_readers_elsewhere_share_one_copy_of_the_log(shared: Mapping[str, Any]) -> None:
    gate = Gate()
    async with (
        sharing(shared, Parrot("one", gate=gate), Parrot()) as (first, second),
        first.running() as asked,
        AsyncExitStack() as stack,
    ):
        await asked.next()
        readers = [await stack.enter_async_context(second.connecting()) for _ in range(5)]
        for reader in readers:
            await reader.next()
        gate.release(9)
        texts = [text_of(await reader.rest()) for reader in readers]

    assert texts == ["one"] * 5


async def test_a_thread_is_deleted_at_another_server_after_its_run_was_ended(
    shared: Mapping[str, Any],
) -> None:
    gate = Gate()
    async with (
        sharing(shared, Parrot("one", gate=gate), Parrot()) as (first, second),
        first.running() as asked,
    ):
        gate.release(2)
        await asked.until("TEXT_MESSAGE_CONTENT")
        deleted = await second.ask("DELETE", "/threads/t", {"agentId": "default"})
        events = await asked.rest()
        left = (await first.connect()).events()

    assert deleted.status == 200
    message = "The thread was deleted."
    assert events[-1] == {"type": "RUN_ERROR", "message": message, "code": "abort"}
    assert text_of(left) == ""


async def test_a_question_is_refused_while_another_server_answers(
    shared: Mapping[str, Any],
) -> None:
    gate = Gate()
    async with (
        sharing(shared, Parrot("one", gate=gate), Parrot()) as (first, second),
        first.running(run="r1") as asked,
    ):
        await asked.next()
        refused = (await second.run(run="r2")).events()
        gate.release(9)
        await asked.rest()

    assert [event.get("code") for event in refused] == ["THREAD_BUSY"]


async def test_a_question_waits_for_the_answer_of_another_server(shared: Mapping[str, Any]) -> None:
    gate = Gate()
    models = (Parrot("one", gate=gate), Parrot("two"))
    async with sharing(shared, *models, when_busy="queue") as (first, second):
        async with (
            first.running(run="r1") as asked,
            second.running(run="r2", messages=[user("Next", "user-2")]) as waiting,
        ):
            await asked.next()
            gate.release(9)
            answered = await waiting.rest()
            await asked.rest()
        stored = (await second.connect()).events()

    runs = [event["runId"] for event in stored if event["type"] == "RUN_STARTED"]
    assert (text_of(answered), runs) == ("two", ["r1", "r2"])


@pytest.mark.parametrize("body", [None, {"runId": "r1"}], ids=["any", "one"])
async def test_a_run_that_starts_is_stopped_at_another_server(
    shared: Mapping[str, Any], body: Any
) -> None:
    starts, never = asyncio.Event(), asyncio.Event()

    async def hang(run: RunInput) -> None:
        starts.set()
        await never.wait()

    options = {"hooks": Hooks(before_request=hang)}
    async with sharing(shared, Parrot(), Parrot(), options=options) as (first, second):
        asking = asyncio.create_task(first.run(run="r1"))
        await starts.wait()
        stopped = await second.stop("t", body)
        again = await second.stop("t", body)
        events = (await asking).events()

    assert (stopped["stopped"], again["stopped"]) == (True, False)
    assert [event["type"] for event in events] == ["RUN_ERROR"]


async def test_a_run_that_starts_is_stopped_at_a_server_that_was_alone_a_moment_ago(
    shared: Mapping[str, Any],
) -> None:
    starts, never = asyncio.Event(), asyncio.Event()

    async def hang(run: RunInput) -> None:
        starts.set()
        await never.wait()

    settings = Settings(**shared)
    async with browsing(Parrot(), settings=settings) as first:
        await first.run(thread="before")  # so it has looked for others
        async with browsing(
            Parrot(), settings=settings, hooks=Hooks(before_request=hang)
        ) as second:
            asking = asyncio.create_task(second.run(thread="t"))
            await starts.wait()
            stopped = await first.stop("t")
            never.set()
            events = (await asking).events()

    assert stopped["stopped"] is True
    assert [event["type"] for event in events] == ["RUN_ERROR"]


@pytest.mark.parametrize("at", [0, 1], ids=["there", "elsewhere"])
@pytest.mark.parametrize("body", [None, {"runId": "r1"}], ids=["any", "one"])
async def test_a_question_is_stopped_during_the_duplicate_check(
    shared: Mapping[str, Any], body: Any, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks, goes_on = asyncio.Event(), asyncio.Event()
    find = DatabaseThreads.find_logs

    async def find_slowly(self: DatabaseThreads[Any], key: Any, run_id: str) -> Any:
        asks.set()
        await goes_on.wait()
        return await find(self, key, run_id)

    monkeypatch.setattr(DatabaseThreads, "find_logs", find_slowly)
    monkeypatch.setattr(
        "copilot_runtime.extensions.cluster.peers._STALE", -1
    )  # it looks for others
    models = (Parrot(), Parrot())
    async with sharing(shared, *models) as browsers:
        await asyncio.gather(*(browser.connect() for browser in browsers))  # they know each other
        asking = asyncio.create_task(browsers[0].run(run="r1"))
        await asks.wait()
        stopped = await browsers[at].stop("t", body)
        goes_on.set()
        events = (await asking).events()
        again = (await browsers[at].run(run="r1")).events() if at == 0 else events

    assert stopped["stopped"] is True
    assert [(event["type"], event["code"]) for event in events] == [("RUN_ERROR", "abort")]
    assert again == events
    assert models[0].requests == []


@pytest.mark.parametrize("when_busy", ["queue", "supersede"])
async def test_of_two_questions_at_one_moment_each_has_its_turn(
    shared: Mapping[str, Any], when_busy: str
) -> None:
    come: list[str] = []
    both = asyncio.Event()

    async def meet(run: RunInput) -> None:
        come.append(run.run_id)
        if len(come) == 2:
            both.set()
        await both.wait()  # neither has begun, so neither can see the other

    options = {"hooks": Hooks(before_request=meet)}
    async with sharing(shared, Parrot(), Parrot(), options=options, when_busy=when_busy) as servers:
        asks = [
            server.run(run=f"r{at}", messages=[user(str(at), f"user-{at}")])
            for at, server in enumerate(servers)
        ]
        answers = [answer.events() for answer in await asyncio.gather(*asks)]
        stored = (await servers[0].connect()).events()

    assert {text_of(events) for events in answers} >= {f"You said {come[-1][1:]}"}
    assert not any(event.get("code") == "THREAD_BUSY" for events in answers for event in events)
    assert [event["type"] for event in stored].count("RUN_STARTED") == 2


async def test_a_question_that_waits_for_another_server_hides_and_keeps_nothing_of_its_answer(
    shared: Mapping[str, Any],
) -> None:
    gate = Gate()
    models = (Parrot("one", gate=gate), Parrot("two"))
    async with (
        sharing(shared, *models, when_busy="queue") as (first, second),
        first.running(run="r1") as asked,
        second.running(run="r2", messages=[user("Next", "user-2")]) as waiting,
    ):
        gate.release(2)
        await asked.until("TEXT_MESSAGE_CONTENT")
        async with second.connecting() as reader:
            await reader.until("TEXT_MESSAGE_CONTENT")
        stopped = await second.stop("t")
        ended, answered = await asked.rest(), await waiting.rest()

    assert stopped["stopped"] is True
    assert (ended[-1]["type"], text_of(answered)) == ("RUN_ERROR", "two")


async def test_a_question_that_waits_at_another_server_is_withdrawn(
    shared: Mapping[str, Any],
) -> None:
    gate = Gate()
    models = (Parrot("one", gate=gate), Parrot("two"))
    async with (
        sharing(shared, *models, when_busy="queue") as (first, second),
        first.running(run="r1") as asked,
        second.running(run="r2", messages=[user("Next", "user-2")]) as waiting,
    ):
        await asked.next()
        stopped = await first.stop("t", {"runId": "r2"})
        refused = await waiting.rest()
        gate.release(9)
        answered = await asked.rest()

    assert stopped["stopped"] is True
    assert ([event["type"] for event in refused], text_of(answered)) == (["RUN_ERROR"], "one")


async def test_a_waiting_question_is_refused_when_its_own_server_stops(
    shared: Mapping[str, Any],
) -> None:
    gate = Gate()
    settings = Settings(**shared, when_busy="queue")
    opened: list[Conversations] = []
    async with (
        browsing(Parrot("one", gate=gate), settings=settings) as first,
        first.running(run="r1") as asked,
    ):
        await asked.next()
        OPENED.set(opened)
        async with (
            browsing(Parrot("two"), settings=settings) as second,
            second.running(run="r2", messages=[user("Next", "user-2")]) as waiting,
        ):
            await waiting.to_comment()
            await opened[0].aclose()  # as `copilot-runtime serve` does
            refused = await waiting.rest()
        gate.release(9)
        answer = await asked.rest()

    assert [event["code"] for event in refused] == ["RUN_INTERRUPTED"]
    assert text_of(answer) == "one"


async def test_deleting_a_thread_takes_away_what_waits_at_another_server(
    shared: Mapping[str, Any],
) -> None:
    gate = Gate()
    models = (Parrot("one", gate=gate), Parrot("two"))
    async with (
        sharing(shared, *models, when_busy="queue") as (first, second),
        first.running(run="r1") as asked,
        second.running(run="r2", messages=[user("Next", "user-2")]) as waiting,
    ):
        await asked.next()
        await waiting.to_comment()
        deleted = await first.ask("DELETE", "/threads/t", {"agentId": "default"})
        ends = [(await one.rest())[-1] for one in (asked, waiting)]
        left = (await second.connect()).events()

    end = {"type": "RUN_ERROR", "message": "The thread was deleted.", "code": "abort"}
    assert (deleted.status, ends) == (200, [end, end])
    assert [event["type"] for event in left if event["type"] == "RUN_STARTED"] == []


async def test_a_question_ends_the_answer_of_another_server(shared: Mapping[str, Any]) -> None:
    gate = Gate()
    models = (Parrot("one", gate=gate), Parrot("two"))
    async with (
        sharing(shared, *models, when_busy="supersede") as (first, second),
        first.running(run="r1") as asked,
    ):
        gate.release(2)
        await asked.until("TEXT_MESSAGE_CONTENT")
        answered = (await second.run(run="r2", messages=[user("Next", "user-2")])).events()
        ended = await asked.rest()

    message = "A newer question in this thread replaced this answer."
    assert ended[-1] == {"type": "RUN_ERROR", "message": message, "code": "abort"}
    assert text_of(answered) == "two"


async def test_a_server_that_ends_lets_readers_elsewhere_see_how_its_run_ended(
    shared: Mapping[str, Any],
) -> None:
    gate = Gate()
    async with AsyncExitStack() as stack:
        settings = Settings(**shared, stop_timeout=1)
        second = await stack.enter_async_context(browsing(Parrot(), settings=settings))
        async with (
            browsing(Parrot("one", gate=gate), settings=settings) as first,
            first.running() as asked,
        ):
            gate.release(2)
            await asked.until("TEXT_MESSAGE_CONTENT")
            reader = await stack.enter_async_context(second.connecting())
            await reader.until("TEXT_MESSAGE_CONTENT")
        followed = await reader.rest()

    assert (followed[-1]["type"], followed[-1]["code"]) == ("RUN_ERROR", "RUN_INTERRUPTED")
