"""A client that stops reading loses its connection, and the server drops what waits for it."""

import asyncio
import gc
import json
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from fastapi import FastAPI, Request, Response
from starlette.types import ASGIApp, Message, Receive
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from copilot_runtime import CopilotRuntime, Events, RunInput, Settings
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.api.events import ActionExecutionResult, Event
from tests.in_one_test import in_one_test
from tests.wire.client import PATH as V1_PATH
from tests.wire.client import client_of
from tests.wire_agui.http import Browser, connect_input, run_input, text_of
from tests.wire_agui.server import PATH, serving

pytestmark = pytest.mark.anyio

SIZE = 16 * 1024 * 1024
"""More than the buffers of two sockets take."""

REQUESTS = {
    "run": ("POST", "/agent/novelist/run", run_input(thread="other")),
    "connect": ("POST", "/agent/novelist/connect", connect_input("t")),
    "messages": ("GET", "/threads/t/messages", None),
}


class Novelist:
    """Says all at once."""

    async def run(self, run: RunInput) -> Events:
        for event in say("x" * SIZE, id="novel"):
            yield event


def runtime() -> CopilotRuntime:
    settings = Settings(threads="memory", write_timeout=0.3, max_bytes_per_run=2 * SIZE)
    return CopilotRuntime(agents={"novelist": Novelist()}, settings=settings)


def by_itself() -> ASGIApp:
    return runtime().app(path=PATH)


def mounted() -> FastAPI:
    host = FastAPI()
    runtime().mount(host, PATH)
    return host


def under_middleware() -> ASGIApp:
    host = mounted()

    @host.middleware("http")
    async def stamp(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        return await call_next(request)

    return host


def reporting(protocol: type[asyncio.Protocol], lost: asyncio.Event) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol, which tells when the server has given up a connection."""

    class Reporting(protocol):
        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            lost.set()

    return Reporting


ASYNCIO, UVLOOP = ("asyncio", {"use_uvloop": False}), ("asyncio", {"use_uvloop": True})


@pytest.mark.parametrize(
    ("anyio_backend", "protocol", "app", "request_of"),
    [
        (UVLOOP, HttpToolsProtocol, by_itself, "run"),
        (UVLOOP, H11Protocol, mounted, "run"),
        (UVLOOP, HttpToolsProtocol, under_middleware, "connect"),
        (ASYNCIO, HttpToolsProtocol, mounted, "run"),
        (ASYNCIO, H11Protocol, under_middleware, "run"),
        (ASYNCIO, H11Protocol, by_itself, "messages"),
    ],
)
async def test_the_connection_of_a_stalled_client_is_aborted_and_its_answer_dropped(
    request_of: str, app: Callable[[], ASGIApp], protocol: type[asyncio.Protocol]
) -> None:
    lost = asyncio.Event()
    async with serving(app(), http=reporting(protocol, lost)) as port:
        browser = Browser(port)
        await browser.run(agent="novelist")
        await lost.wait()
        lost.clear()
        gc.collect()
        tracemalloc.start()
        async with browser.open(*REQUESTS[request_of]):
            await lost.wait()
            await anyio.wait_all_tasks_blocked()  # what served it ends
            gc.collect()
            kept, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()

    assert kept < (2 * SIZE if request_of == "run" else SIZE // 4)  # a run is in the store now


@in_one_test("request_of", ["connect", "events"])
@in_one_test("form", ["texts", "text", "result"])
async def test_many_readers_that_stall_hold_a_long_thread_once(
    form: str, request_of: str, tmp_path: Path
) -> None:
    size, readers = 2 * 1024 * 1024, 10
    events: list[Event] = [*say("x" * size)]
    if form == "texts":
        events = [event for n in range(2) for event in say("x" * (size // 2), id=f"m{n}")]
    if form == "result":
        result = ActionExecutionResult(call_id="c", name="look", result="x" * size)
        events = [*call("look", {}, id="c"), result]
    stalled = asyncio.Semaphore(0)

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            stalled.release()
            await asyncio.Event().wait()

    class Author:
        async def run(self, run: RunInput) -> Events:
            for event in events:
                yield event

    settings = Settings(threads=f"sqlite:{tmp_path}/threads.db")
    runtime = CopilotRuntime(agents={"default": Author()}, settings=settings)
    async with client_of(runtime) as client:
        path = f"{V1_PATH}/agent/default"
        await client.ask(run_input(), path=f"{path}/run")
        gc.collect()
        tracemalloc.start()
        body = json.dumps(connect_input("t")).encode() if request_of == "connect" else b""
        method, path = {
            "connect": ("POST", f"{path}/connect"),
            "events": ("GET", f"{V1_PATH}/threads/t/events"),
        }[request_of]
        exchanges = [client.open(body, method=method, path=path) for _ in range(readers)]
        tasks = [
            asyncio.create_task(client.app(each.scope, one_body(body), send)) for each in exchanges
        ]
        for _ in tasks:
            await stalled.acquire()
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    assert held < 4 * size


def one_body(body: bytes) -> Receive:
    """Return the `receive` of a client that sends a body and stays."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if not messages:
            await asyncio.Event().wait()
        return messages.pop()

    return receive


async def test_a_long_thread_reaches_a_slow_reader_whole() -> None:
    async with serving(by_itself()) as port:
        browser = Browser(port)
        answered = await browser.run(agent="novelist")
        replayed = await browser.connect(agent="novelist")

    for response in (answered, replayed):  # parsed beside the loop, where nothing waits for it
        assert text_of(await asyncio.to_thread(response.events)) == "x" * SIZE
