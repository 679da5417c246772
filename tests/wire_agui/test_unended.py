"""What a client sees of a run that this server does not have, and whose end is nowhere."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from copilot_runtime.api.events import (
    ActionExecutionStart,
    Event,
    TextMessageContent,
    TextMessageStart,
)
from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.threads.store import Segment
from tests.threads.logs import KEY, log_of, run_of, told
from tests.wire_agui.http import Browser
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

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
