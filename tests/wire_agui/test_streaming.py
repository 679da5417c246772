"""A stream arrives as it is written, is never silent for long, and holds nobody up."""

import asyncio
import logging
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from copilot_runtime import Events, RunInput, Settings
from copilot_runtime.adapters.scripted import Gate, say
from copilot_runtime.api.events import (
    ActionExecutionStart,
    Event,
    TextMessageContent,
    TextMessageStart,
)
from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.threads.store import Segment
from tests.in_one_test import in_one_test
from tests.threads.recorded import KEY, log_of, run_of, told
from tests.wire.test_nginx import nginx
from tests.wire.upstream import HEAD, Step, finish, text, upstream
from tests.wire_agui.http import Browser, run_input, text_of
from tests.wire_agui.server import Parrot, browsing

pytestmark = pytest.mark.anyio

QUICK = Settings(threads="memory", keep_alive=0.05)


async def test_the_head_tells_everybody_on_the_way_to_hold_nothing_back() -> None:
    async with browsing() as browser:
        answers = [
            await browser.run(),
            await browser.connect(),
            await browser.ask("POST", "/agent/default/suggest", run_input()),
            await browser.ask("POST", "", run_input(run="r2")),
        ]

    for answer in answers:
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["x-accel-buffering"] == "no"
        assert "content-length" not in answer.headers
        assert answer.body.endswith(b"}\n\n")
        assert b"\r" not in answer.body


@in_one_test("behind", ["nothing", "nginx"])
async def test_every_token_is_seen_before_the_next_one_is_made(behind: str) -> None:
    words = [f"word{number} " for number in range(8)]
    gates = [asyncio.Event() for _ in words]
    script: list[Step] = [HEAD]
    for gate, word in zip(gates, words, strict=True):
        script += [gate, text(word)]
    seen: list[str] = []
    async with upstream() as provider, browsing(provider.adapter()) as browser:
        provider.plays([*script, finish()])
        if behind == "nginx":
            assert isinstance(browser.where, int)
            async with nginx(browser.where) as socket:
                seen = await _released(Browser(socket), gates)
        else:
            seen = await _released(browser, gates)

    assert seen == words


async def _released(browser: Browser, gates: list[asyncio.Event]) -> list[str]:
    """Let one token go after the other; return them as they come."""
    seen: list[str] = []
    async with browser.running() as exchange:
        for gate in gates:
            gate.set()
            seen.append((await exchange.until("TEXT_MESSAGE_CONTENT"))["delta"])
        await exchange.until("RUN_FINISHED")
    return seen


@in_one_test("way", ["run", "connect"])
async def test_silence_is_filled_with_comments(way: str) -> None:
    gate = Gate()
    async with (
        browsing(Parrot("one", gate=gate), settings=QUICK) as browser,
        browser.running() as running,
    ):
        await running.until("RUN_STARTED")
        async with browser.connecting() as connecting:
            await connecting.until("RUN_STARTED")
            exchange = running if way == "run" else connecting
            await exchange.to_comment()
            await exchange.to_comment()
            gate.release(3)
            events = await exchange.rest()

    assert exchange.comments >= 2
    assert text_of(events) == "one"
    assert events[-1]["type"] == "RUN_FINISHED"


async def test_no_comment_falls_into_an_event() -> None:
    """Comments and events are written by two: at every moment of a run by turns."""
    settings = Settings(threads="memory", keep_alive=0.001)

    class Slowly:
        async def run(self, run: RunInput) -> Events:
            for event in say([f"{number} " for number in range(200)]):
                yield event
                if number_of(event) % 20 == 0:
                    await asyncio.sleep(0.003)  # longer than the silence that is allowed

    def number_of(event: object) -> int:
        return int(getattr(event, "content", "1"))

    async with (
        browsing(agents={"slow": Slowly()}, settings=settings) as browser,
        browser.running(agent="slow") as exchange,
    ):
        events = await exchange.rest()

    assert exchange.comments > 0
    assert text_of(events) == "".join(f"{number} " for number in range(200))


async def test_without_keep_alive_there_is_no_comment() -> None:
    settings = Settings(threads="memory", keep_alive=0)
    async with browsing(settings=settings) as browser:
        answer = await browser.run()

    assert b"\n:" not in answer.body


class Torrent:
    """An agent that says megabytes as fast as it can."""

    pieces = 6000
    size = 2000

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def run(self, run: RunInput) -> Events:
        for event in say([f"{number:0{self.size}}" for number in range(self.pieces)], id="m"):
            yield event
            await asyncio.sleep(0)
        self.ended.set()


async def test_a_slow_reader_holds_up_neither_the_run_nor_others_nor_memory() -> None:
    torrent = Torrent()
    agents = {"torrent": torrent}
    async with (
        browsing(Parrot("Hello"), agents=agents) as browser,
        browser.running(agent="torrent", thread="slow") as exchange,
    ):
        await exchange.next()
        tracemalloc.start()
        others = [await browser.run(thread=f"t{number}") for number in range(10)]
        await torrent.ended.wait()
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        events = await exchange.rest()

    whole = torrent.pieces * torrent.size
    assert [text_of(answer.events()) for answer in others] == ["Hello"] * 10
    assert len(text_of(events)) == whole
    # the log itself, kept once for all readers, and what the store keeps of it
    assert kept < 4 * whole


async def test_a_reader_who_takes_nothing_is_cut_off_and_the_run_goes_on() -> None:
    torrent, cut = Torrent(), asyncio.Event()

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            cut.set()

    watch, logger = Watch(), logging.getLogger("copilot_runtime.transports.streaming")
    settings = Settings(threads="memory", write_timeout=0.3)
    async with browsing(agents={"torrent": torrent}, settings=settings) as browser:
        async with browser.running(agent="torrent") as exchange:
            logger.addHandler(watch)
            await cut.wait()
            await torrent.ended.wait()
            logger.removeHandler(watch)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await _stalled(exchange.reader)
        replayed = await browser.connect(agent="torrent")

    assert len(text_of(replayed.events())) == torrent.pieces * torrent.size


async def _stalled(reader: asyncio.StreamReader) -> None:
    """Read what is left of a stream that breaks off."""
    while True:
        size = int(await reader.readuntil(b"\r\n"), 16)
        await reader.readexactly(size + 2)
        if not size:
            return


HALF: list[Event] = [
    TextMessageStart(message_id="half"),
    *(TextMessageContent(message_id="half", content=f"{number} ") for number in range(20)),
    ActionExecutionStart(call_id="c", name="look", parent_id="half"),
]


def _ann(connection: HTTPConnection) -> str:
    return KEY.owner


@asynccontextmanager
async def beginning_elsewhere(*events: Event) -> AsyncGenerator[tuple[Browser, MemoryThreads]]:
    """Yield a browser, and the store to which another server has begun to write a run."""
    store = MemoryThreads()
    async with browsing(threads=store, authenticate=_ann) as browser:
        await told(store, run_of(log_id="first"))
        run = run_of(run_id="other", log_id="second")
        log = log_of(run, *events, new=await store.begin(run))
        if events:
            await store.write([Segment(log_id="second", events=log[:-1])])
        yield browser, store


async def test_it_is_shown_closed_and_short_with_the_reason() -> None:
    async with beginning_elsewhere(*HALF) as (browser, store):
        frames: list[Any] = (await browser.connect()).events()
        kept = await store.runs(KEY)
    second = frames[[frame.get("runId") for frame in frames].index("other") :]

    assert [frame["type"] for frame in second] == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "TOOL_CALL_START",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
        "RUN_ERROR",
    ]
    assert second[-1]["code"] == "RUN_INTERRUPTED"
    assert [run.ended for run in kept] == [True, False]  # the end may still come


async def test_one_that_has_said_nothing_yet_has_an_end_too() -> None:
    async with beginning_elsewhere() as (browser, _):
        types = (await browser.connect()).types()

    assert types[-1] == "RUN_ERROR"
    assert types.count("RUN_STARTED") == 2
