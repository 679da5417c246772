"""Runs outlive their readers, and whoever comes back sees all of it once."""

import asyncio
import gc
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from copilot_runtime import ChatRequest, Events, Settings, action
from copilot_runtime.adapters.scripted import Gate, call
from copilot_runtime.api.hooks import Hooks
from copilot_runtime.base.errors import NetworkError
from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.threads.store import StoredRun, ThreadKey
from copilot_runtime.transports.streaming import Stream
from tests.in_one_test import in_one_test
from tests.wire.upstream import HEAD, SILENCE, text, upstream
from tests.wire_agui.http import run_input, text_of, user
from tests.wire_agui.server import Parrot, browsing

pytestmark = pytest.mark.anyio


async def test_a_run_goes_on_when_its_reader_leaves() -> None:
    gate = Gate()
    async with browsing(Parrot("one ", "two", gate=gate)) as browser:
        async with browser.running() as exchange:
            gate.release(2)
            await exchange.until("TEXT_MESSAGE_CONTENT")
            exchange.hang_up()
        async with browser.connecting() as again:
            gate.release(2)
            events = await again.rest()
        replayed = await browser.connect()

    assert text_of(events) == "one two"
    assert [event["type"] for event in events][-1] == "RUN_FINISHED"
    assert text_of(replayed.events()) == "one two"
    assert replayed.types().count("RUN_STARTED") == 1


@in_one_test("who", ["asks", "connects"])
async def test_of_a_reader_who_leaves_nothing_stays_in_memory(who: str) -> None:
    gate = Gate()
    async with (
        browsing(Parrot("one ", "two", gate=gate)) as browser,
        browser.running() as asker,
        asyncio.timeout(30),
    ):
        gc.collect()
        gc.disable()  # it would find them one day
        try:
            others = list_streams()
            reader = browser.running(thread="left") if who == "asks" else browser.connecting()
            async with reader as exchange:
                await exchange.until("RUN_STARTED")
                exchange.hang_up()
            while [it for it in list_streams() if it not in others]:
                await browser.ask("GET", "/info")
        finally:
            gc.enable()
            gate.release(10)
        await asker.rest()


async def test_two_readers_who_come_during_a_run_both_see_all_of_it() -> None:
    gate = Gate()
    async with (
        browsing(Parrot("one ", "two ", "three", gate=gate)) as browser,
        browser.running() as first,
        browser.connecting() as second,
        browser.connecting() as third,
    ):
        gate.release(2)
        for exchange in (first, second, third):
            await exchange.until("TEXT_MESSAGE_CONTENT")
        gate.release(3)
        seen = [await exchange.rest() for exchange in (first, second, third)]

    assert seen[0] == seen[1] == seen[2]
    assert text_of(seen[0]) == "one two three"


async def test_who_connects_sees_the_runs_before_and_then_the_one_on_its_way() -> None:
    model, gate = Parrot(), Gate()
    async with browsing(model) as browser:
        await browser.run(run="r1")
        model.gate = gate
        async with browser.running(run="r2", messages=[user("More", "user-2")]) as running:
            await running.next()
            async with browser.connecting() as exchange:
                await exchange.until("RUN_FINISHED")
                await exchange.until("RUN_STARTED")
                gate.release(3)
                events = await exchange.rest()

    assert [event["runId"] for event in events if event["type"] == "RUN_STARTED"] == ["r1", "r2"]
    assert text_of(events) == "You said HiYou said More"


@in_one_test("store", ["memory", "sqlite"])
async def test_at_every_moment_of_a_run_a_connect_misses_nothing_and_repeats_nothing(
    store: str, tmp_path: Path
) -> None:
    """Connects begin at all places of runs that nobody holds back."""
    place = store if store == "memory" else f"sqlite:{tmp_path}/threads.db"
    settings = Settings(threads=place)
    wrong: list[Any] = []
    async with browsing(Parrot("a", "b", "c"), settings=settings) as browser:
        for number in range(25):
            thread = f"t{number}"
            running = asyncio.create_task(browser.run(thread=thread))
            seen = [await browser.connect(thread)]
            while not running.done():
                seen += await asyncio.gather(*(browser.connect(thread) for _ in range(3)))
            whole = (await running).events()
            seen.append(await browser.connect(thread))
            wrong += [
                answer.events()
                for answer in seen
                if (events := answer.events())  # before the thread exists there are none
                and (text_of(events) != "abc" or len(events) < 5 or events[-1] != whole[-1])
            ]

    assert wrong == []


class HeldThreads(MemoryThreads):
    """Threads that are read slowly: what happens meanwhile is up to the test."""

    def __init__(self) -> None:
        super().__init__()
        self.reading = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.late = False

    async def runs(self, key: ThreadKey) -> list[StoredRun]:
        found = None if self.late else list(await super().runs(key))
        self.reading.set()
        await self.go_on.wait()
        return list(await super().runs(key)) if found is None else found


@in_one_test("late", [False, True])
@in_one_test("transport", ["agui", "v1"])
async def test_a_run_that_ends_while_the_store_is_read_is_seen_once(
    late: bool, transport: str
) -> None:
    from tests.wire.client import chat

    store, gate = HeldThreads(), Gate()
    store.late = late
    model = Parrot("one ", "two", gate=gate)
    body = run_input() if transport == "agui" else chat(threadId="t")
    path = "/agent/default/run" if transport == "agui" else ""
    async with (
        browsing(model, threads=store) as browser,
        browser.open("POST", path, body) as first,
    ):
        gate.release(2)
        while b"one" not in await first.piece():
            pass
        store.go_on.clear()
        connect = asyncio.create_task(browser.connect())
        await store.reading.wait()
        gate.release(2)
        await first.body()
        store.go_on.set()
        answer = await connect

    assert text_of(answer.events()) == "one two"
    assert answer.types().count("RUN_STARTED") == 1
    assert answer.types()[-1] == "RUN_FINISHED"


@in_one_test("late", [False, True])
async def test_a_run_that_begins_while_the_store_is_read_is_not_cut_in_two(late: bool) -> None:
    store, gate = HeldThreads(), Gate()
    store.late = late
    model = Parrot()
    async with browsing(model, threads=store) as browser:
        await browser.run(run="r1")
        model.gate = gate
        store.go_on.clear()
        store.reading.clear()
        connect = asyncio.create_task(browser.connect())
        await store.reading.wait()
        async with browser.running(run="r2", messages=[user("More", "user-2")]) as second:
            await second.until("RUN_STARTED")
            gate.release()
            await second.until("TEXT_MESSAGE_START")
            store.go_on.set()
            gate.release(3)
            await second.rest()
        answer = await connect

    runs = [event["runId"] for event in answer.events() if event["type"] == "RUN_STARTED"]
    ends = [event["runId"] for event in answer.events() if event["type"] == "RUN_FINISHED"]
    assert runs == ends
    assert runs in (["r1"], ["r1", "r2"])


@in_one_test("store", ["memory", "sqlite"])
@in_one_test("log_ttl", [0, 300])
async def test_an_answer_is_read_to_its_end_however_short_its_log_is_kept(
    store: str, log_ttl: float, tmp_path: Path
) -> None:
    place = store if store == "memory" else f"sqlite:{tmp_path}/threads.db"
    settings = Settings(threads=place, log_ttl=log_ttl)
    async with browsing(settings=settings) as browser:
        answers = [await browser.run(thread=f"t{number}") for number in range(20)]
        suggested = [
            await browser.ask("POST", "/agent/default/suggest", run_input()) for _ in range(20)
        ]

    assert {answer.types()[-1] for answer in answers} == {"RUN_FINISHED"}
    assert {answer.types()[-1] for answer in suggested} == {"RUN_FINISHED"}


async def test_a_thread_nobody_knows_is_an_empty_stream() -> None:
    async with browsing() as browser:
        answer = await browser.connect("unknown")

    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-type"] == "text/event-stream"


async def test_a_connect_does_not_follow_later_runs() -> None:
    async with browsing() as browser:
        await browser.run(run="r1")
        async with browser.connecting() as exchange:
            await exchange.until("RUN_FINISHED")
            assert await exchange.next() is None


async def test_a_suggestion_ends_with_its_reader_and_leaves_nothing() -> None:
    model = Parrot("one ", "two", gate=(gate := Gate()))
    async with browsing(model) as browser:
        async with browser.open("POST", "/agent/default/suggest", run_input()) as exchange:
            gate.release(2)
            await exchange.until("TEXT_MESSAGE_CONTENT")
            exchange.hang_up()
            await model.left.wait()
        threads = (await browser.ask("GET", "/threads")).json()["threads"]
        connected = await browser.connect()

    assert threads == []
    assert connected.body == b""


async def test_after_a_restart_a_run_cut_by_the_end_of_the_server_can_be_read(
    tmp_path: Path,
) -> None:
    settings = Settings(threads=f"sqlite:{tmp_path}/threads.db")
    gate = Gate()
    async with (
        browsing(Parrot("one ", "two", gate=gate), settings=settings) as browser,
        browser.running() as exchange,
    ):
        gate.release(2)
        await exchange.until("TEXT_MESSAGE_CONTENT")
        exchange.hang_up()
    async with browsing(Parrot(), settings=settings) as browser:
        cut = (await browser.connect()).events()
        messages = (await browser.ask("GET", "/threads/t/messages")).json()["messages"]
        await browser.run(run="r2", messages=[user("Again", "user-2")])
        after = (await browser.connect()).events()

    assert text_of(cut) == "one "
    assert [event["type"] for event in cut][-2:] == ["TEXT_MESSAGE_END", "RUN_ERROR"]
    assert [message["content"] for message in messages] == ["Hi", "one "]
    assert text_of(after) == "one You said Again"


async def test_stop_ends_the_run_and_closes_the_call_to_the_model() -> None:
    async with upstream() as provider, browsing(provider.adapter()) as browser:
        provider.plays([HEAD, text("one "), SILENCE])
        async with browser.running() as exchange:
            await exchange.until("TEXT_MESSAGE_CONTENT")
            stopped = await browser.stop()
            events = await exchange.rest()
        await provider.until(open=0, hung_up=1)
        replayed = (await browser.connect()).types()

    assert stopped == {
        "stopped": True,
        "interrupt": {"type": "RUN_ERROR", "message": "Run stopped by user", "code": "STOPPED"},
    }
    assert [event["type"] for event in events][-2:] == ["TEXT_MESSAGE_END", "RUN_ERROR"]
    assert events[-1] == {"type": "RUN_ERROR", "message": "Run stopped by user", "code": "abort"}
    assert replayed[-2:] == ["TEXT_MESSAGE_END", "RUN_ERROR"]


@in_one_test("stopped", [True, False])
async def test_an_action_that_came_to_nothing_has_a_result_that_says_so(stopped: bool) -> None:
    begun = asyncio.Event()

    @action
    async def ask_bank() -> str:
        """Ask the bank."""
        begun.set()
        await asyncio.Event().wait()
        return "never"

    class Model:
        async def stream(self, request: ChatRequest) -> Events:
            for event in [*call("ask_bank", id="c1"), *call("find_colour", id="c2")]:
                yield event
            if not stopped:
                await begun.wait()
                raise NetworkError("The model went away.")

    tools = [{"name": "find_colour", "description": "", "parameters": {"type": "object"}}]
    async with browsing(Model(), actions=[ask_bank]) as browser:
        async with browser.running(tools=tools) as exchange:
            await begun.wait()
            if stopped:
                await browser.stop()
            live = await exchange.rest()
        later = (await browser.connect()).events()

    reason = {"status": "error", "reason": "missing_terminal_event"}
    if stopped:
        reason = {"status": "stopped", "reason": "stop_requested"}
    for events in (live, later):  # the call of the page is the page's to answer
        [result] = [event for event in events if event["type"] == "TOOL_CALL_RESULT"]
        assert result["toolCallId"] == "c1"
        content = json.loads(result["content"])
        assert reason.items() <= content.items()
        assert "may have been done: find out before you make it again." in content["message"]


async def test_stop_of_another_run_of_the_thread_stops_nothing() -> None:
    gate = Gate()
    async with (
        browsing(Parrot("one", gate=gate)) as browser,
        browser.running(run="mine") as exchange,
    ):
        await exchange.next()
        other = await browser.stop(body={"runId": "other"})
        gate.release(3)
        events = await exchange.rest()

    assert other == {"stopped": False, "message": "No active run for thread 't'."}
    assert events[-1]["type"] == "RUN_FINISHED"


async def test_stop_by_the_id_of_the_run_stops_it_and_a_second_time_there_is_nothing() -> None:
    gate = Gate()
    async with browsing(Parrot("one", gate=gate)) as browser:
        async with browser.running(run="mine") as exchange:
            await exchange.next()
            first = await browser.stop(body={"runId": "mine"})
            await exchange.rest()
        second = await browser.stop(body={"runId": "mine"})

    assert (first["stopped"], second["stopped"]) == (True, False)


@in_one_test("body", [{"runId": 5}, {"run": "r"}, ["r"], "r"])
async def test_a_stop_that_cannot_be_read_stops_nothing(body: object) -> None:
    gate = Gate()
    async with browsing(Parrot("one", gate=gate)) as browser, browser.running() as exchange:
        await exchange.next()
        answer = await browser.ask("POST", "/agent/default/stop/t", body)
        gate.release(3)
        events = await exchange.rest()

    assert answer.status == 400
    assert events[-1]["type"] == "RUN_FINISHED"


async def test_a_run_can_be_stopped_while_a_hook_still_looks_at_it() -> None:
    looking, go_on = asyncio.Event(), asyncio.Event()

    async def look(run: Any) -> None:
        looking.set()
        await go_on.wait()

    model = Parrot()
    async with browsing(model, hooks=Hooks(before_request=look)) as browser:
        running = asyncio.create_task(browser.run())
        await looking.wait()
        stopped = await browser.stop()
        go_on.set()
        answer = await running

    assert stopped["stopped"] is True
    message = "The run was stopped before it began."
    assert answer.events() == [{"type": "RUN_ERROR", "message": message, "code": "abort"}]
    assert model.requests == []


async def test_deleting_a_thread_ends_its_run_and_forgets_it() -> None:
    gate = Gate()
    async with browsing(Parrot("one", gate=gate)) as browser:
        async with browser.running() as exchange:
            await exchange.next()
            deleted = await browser.ask("DELETE", "/threads/t", {"agentId": "default"})
            events = await exchange.rest()
        connected = await browser.connect()
        again = await browser.ask("DELETE", "/threads/t")

    assert (deleted.status, deleted.json()) == (200, {"threadId": "t", "deleted": True})
    message = "The thread was deleted."
    assert events[-1] == {"type": "RUN_ERROR", "message": message, "code": "abort"}
    assert connected.body == b""
    assert again.status == 404


async def test_a_server_that_ends_does_not_begin_what_waits_for_its_turn() -> None:
    came: asyncio.Queue[str] = asyncio.Queue()

    def look(connection: HTTPConnection) -> None:
        came.put_nowait(connection.url.path)

    model = Parrot("one", gate=Gate())
    settings = Settings(threads="memory", when_busy="queue")
    async with (
        browsing(model, settings=settings, authenticate=look) as browser,
        browser.running(run="r1") as first,
    ):
        await first.next()
        await came.get()
        waiting = asyncio.create_task(browser.run(run="r2"))
        await came.get()
    await asyncio.gather(waiting, return_exceptions=True)

    assert len(model.requests) == 1


def list_streams() -> list[Stream]:
    """Return the answers that are in memory."""
    return [it for it in gc.get_objects() if isinstance(it, Stream)]
