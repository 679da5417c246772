"""A second question while the first is being answered: refused, first ended, or after it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.adapters.scripted import Gate
from copilot_runtime.api.agent import SupportsRun
from copilot_runtime.runtime.run import Run
from tests.in_one_test import in_one_test
from tests.wire.client import chat
from tests.wire_agui.http import Browser, text_of, user
from tests.wire_agui.server import PATH, Parrot, browsing, serving

pytestmark = pytest.mark.anyio


def set_to(when_busy: Any) -> Settings:
    return Settings(threads="memory", when_busy=when_busy)


async def test_a_second_run_is_refused_and_told_the_way_out() -> None:
    gate = Gate()
    async with browsing(Parrot("one", gate=gate)) as browser:
        async with browser.running(run="r1") as first:
            await first.next()
            second = await browser.run(run="r2")
            gate.release(3)
            undisturbed = await first.rest()
        stored = (await browser.connect()).events()

    [error] = second.events()
    assert (second.status, error["type"], error["code"]) == (200, "RUN_ERROR", "THREAD_BUSY")
    assert "Wait for the answer, or stop it" in error["message"]
    assert undisturbed[-1]["type"] == "RUN_FINISHED"
    assert text_of(undisturbed) == "one"
    assert [event["runId"] for event in stored if event["type"] == "RUN_STARTED"] == ["r1"]


async def test_a_thread_that_is_busy_leaves_others_free() -> None:
    gate, model = Gate(), Parrot()
    async with browsing(model) as browser:
        model.gate = gate
        async with browser.running() as first:
            await first.next()
            model.gate = None
            other = await browser.run(thread="other")
            gate.release(3)
            await first.rest()

    assert other.types()[-1] == "RUN_FINISHED"


async def test_a_suggestion_disturbs_nobody_and_is_not_refused() -> None:
    gate, model = Gate(), Parrot()
    async with browsing(model) as browser:
        model.gate = gate
        async with browser.running() as first:
            await first.next()
            model.gate = None
            suggested = await browser.ask("POST", "/agent/default/suggest", _question("r2"))
            gate.release(3)
            events = await first.rest()

    assert suggested.types()[-1] == "RUN_FINISHED"
    assert events[-1]["type"] == "RUN_FINISHED"


async def test_set_to_supersede_the_first_run_ends_and_keeps_what_it_said() -> None:
    gate, model = Gate(), Parrot()
    async with browsing(model, settings=set_to("supersede")) as browser:
        model.gate = gate
        async with browser.running(run="r1") as first:
            gate.release(2)
            await first.until("TEXT_MESSAGE_CONTENT")
            model.gate = None
            second = await browser.run(run="r2", messages=[user("More", "user-2")])
            ended = await first.rest()
        stored = (await browser.connect()).events()

    assert ended[-1] == {
        "type": "RUN_ERROR",
        "message": "A newer question in this thread replaced this answer.",
        "code": "abort",
    }
    assert text_of(second.events()) == "You said More"
    assert text_of(stored) == "You said HiYou said More"
    assert [event["runId"] for event in stored if event["type"] == "RUN_STARTED"] == ["r1", "r2"]


async def test_set_to_queue_the_second_run_waits_for_its_turn() -> None:
    gate, model = Gate(), Parrot()
    came: asyncio.Queue[str] = asyncio.Queue()

    def look(connection: HTTPConnection) -> None:
        came.put_nowait(connection.url.path)

    settings = set_to("queue")
    async with browsing(model, settings=settings, authenticate=look) as browser:
        model.gate = gate
        async with browser.running(run="r1") as first:
            await first.next()
            await came.get()
            waiting = [
                asyncio.create_task(browser.run(run=f"r{number}", messages=[user(str(number))]))
                for number in (2, 3)
            ]
            await came.get()
            await came.get()
            asked_meanwhile = len(model.requests)
            model.gate = None
            gate.release(3)
            await first.rest()
        answers = [await task for task in waiting]
        stored = (await browser.connect()).types()

    assert asked_meanwhile == 1
    assert {text_of(answer.events()) for answer in answers} == {"You said 2", "You said 3"}
    assert stored.count("RUN_FINISHED") == 3


@in_one_test("store", ["memory", "sqlite"])
async def test_a_follow_up_right_after_the_last_event_is_never_refused(
    store: str, tmp_path: Path
) -> None:
    place = store if store == "memory" else f"sqlite:{tmp_path}/threads.db"
    ends: list[str] = []
    async with browsing(settings=Settings(threads=place)) as browser:
        for number in range(200):
            messages = [user(str(number), f"user-{number}")]
            async with browser.running(run=f"r{number}", messages=messages) as exchange:
                await exchange.until("RUN_FINISHED")
            ends.append(exchange.seen[-1]["type"])

    assert ends == ["RUN_FINISHED"] * 200


async def test_a_question_right_after_a_stop_is_never_refused() -> None:
    gate, model = Gate(), Parrot()
    ends: list[Any] = []
    async with browsing(model) as browser:
        for number in range(50):
            model.gate = gate
            async with browser.running(run=f"r{number}") as exchange:
                await exchange.next()
                await browser.stop()
                model.gate = None
                ends.append((await browser.run(run=f"again-{number}")).events()[-1])

    assert {event["type"] for event in ends} == {"RUN_FINISHED"}


@in_one_test("when_busy", ["refuse", "supersede", "queue"])
async def test_v1_lands_in_the_same_thread_and_always_waits_for_its_turn(when_busy: str) -> None:
    gate, model = Gate(), Parrot()
    came: asyncio.Queue[str] = asyncio.Queue()

    def look(connection: HTTPConnection) -> None:
        came.put_nowait(connection.url.path)

    settings = set_to(when_busy)
    async with browsing(model, settings=settings, authenticate=look) as browser:
        model.gate = gate
        async with browser.running(run="r1") as first:
            await first.next()
            await came.get()
            v1 = asyncio.create_task(_v1(browser))
            await came.get()
            asked_meanwhile = len(model.requests)
            model.gate = None
            gate.release(3)
            events = await first.rest()
        answer = await v1
        stored = (await browser.connect()).events()

    assert asked_meanwhile == 1
    assert events[-1]["type"] == "RUN_FINISHED"
    assert b"SuccessResponseStatus" in answer
    assert text_of(stored) == "You said HiYou said v1"
    said = [
        message["content"]
        for event in stored
        if event["type"] == "RUN_STARTED"
        for message in event["input"]["messages"]
    ]
    assert said == ["Hi", "v1"]


async def test_an_answer_to_v1_that_a_newer_question_replaced_says_so() -> None:
    gate, model = Gate(), Parrot()
    async with browsing(model, settings=set_to("supersede")) as browser:
        model.gate = gate
        v1 = asyncio.create_task(_v1(browser))
        await gate.wait_for_event()
        model.gate = None
        second = await browser.run(run="r2")
        ended = await v1

    assert b"A newer question in this thread replaced this answer." in ended
    assert b'"code":"CANCELLED"' in ended
    assert second.types()[-1] == "RUN_FINISHED"


async def test_an_agui_run_goes_on_where_v1_ended() -> None:
    async with browsing() as browser:
        await _v1(browser)
        asked = [user("v1", "v1-user"), user("Now", "user-2")]
        await browser.run(run="r2", messages=asked)
        stored = (await browser.connect()).events()
        messages = (await browser.ask("GET", "/threads/t/messages")).json()["messages"]

    assert text_of(stored) == "You said v1You said Now"
    assert [message["content"] for message in messages] == [
        "v1",
        "You said v1",
        "Now",
        "You said Now",
    ]


async def _v1(browser: Browser) -> bytes:
    from tests.wire.client import HEADERS
    from tests.wire.client import user as asked

    body = chat(asked("v1", "v1-user"), threadId="t")
    return (await browser.ask("POST", "", body, HEADERS)).body


def _question(run: str) -> dict[str, Any]:
    from tests.wire_agui.http import run_input

    return run_input(run=run)


async def test_a_question_that_waits_is_answered_with_comments_until_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("copilot_runtime.transports.agui.endpoint._SOON", 0.01)
    gate, model = Gate(), Parrot()
    async with browsing(model, settings=set_to("queue")) as browser:
        model.gate = gate
        async with browser.running(run="r1") as first, browser.running(run="r2") as second:
            await second.to_comment()
            model.gate = None
            gate.release(3)
            await first.rest()
            events = await second.rest()

    assert events[-1]["type"] == "RUN_FINISHED"


async def test_a_question_that_is_stopped_while_it_waits_is_told_in_its_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("copilot_runtime.transports.agui.endpoint._SOON", 0.01)
    async with (
        browsing(Parrot("one", gate=Gate()), settings=set_to("queue")) as browser,
        browser.running(run="r1"),
        browser.running(run="r2") as second,
    ):
        await second.to_comment()
        stopped = await browser.stop(body={"runId": "r2"})
        events = await second.rest()

    assert stopped["stopped"] is True
    message = "The run was stopped before it began."
    assert events == [{"type": "RUN_ERROR", "message": message, "code": "abort"}]


async def test_a_stop_ends_the_answer_under_way_and_the_next_question_gets_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("copilot_runtime.transports.agui.endpoint._SOON", 0.01)
    model = Parrot("one", gate=Gate())
    async with (
        browsing(model, settings=set_to("queue")) as browser,
        browser.running(run="r1") as first,
    ):
        await first.until("RUN_STARTED")
        async with browser.running(run="r2") as second:
            await second.to_comment()
            model.gate = None
            stopped = await browser.stop()
            ends = [(await exchange.rest())[-1] for exchange in (first, second)]

    assert stopped["stopped"] is True
    assert [end["type"] for end in ends] == ["RUN_ERROR", "RUN_FINISHED"]
    assert text_of(second.seen) == "one"


async def test_a_v1_client_that_leaves_takes_its_waiting_question_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting: asyncio.Future[Run] = asyncio.get_running_loop().create_future()
    model = Parrot("one", gate=Gate())
    runtime = CopilotRuntime(model, settings=set_to("queue"))
    launch = runtime.conversations.launch

    async def launch_run(run: Run, agent: SupportsRun | None = None) -> None:
        if run.request.is_v1:
            waiting.set_result(run)  # what is called next waits at once
        await launch(run, agent)

    monkeypatch.setattr(runtime.conversations, "launch", launch_run)
    async with serving(runtime.app(path=PATH)) as port:
        browser = Browser(port)
        async with browser.running(run="r1") as first:
            await first.next()
            asked = asyncio.create_task(_v1(browser))
            run = await waiting
            asked.cancel()
            await run.stop_requested
            await browser.stop(body={"runId": "r1"})
            await first.rest()
        again = await browser.stop()

    assert again["stopped"] is False
    assert len(model.requests) == 1
