"""A client that stops reading loses its connection, and the server drops what waits for it."""

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable

import pytest
from fastapi import FastAPI, Request, Response
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from copilot_runtime import CopilotRuntime, Events, RunInput, Settings
from copilot_runtime.adapters.scripted import say
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
            await asyncio.wait_for(lost.wait(), 20)
            gc.collect()
            kept, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()

    assert kept < (2 * SIZE if request_of == "run" else SIZE // 4)  # a run is in the store now


async def test_a_long_thread_reaches_a_slow_reader_whole() -> None:
    async with serving(by_itself()) as port:
        browser = Browser(port)
        answered = await browser.run(agent="novelist")
        replayed = await browser.connect(agent="novelist")

    assert text_of(replayed.events()) == text_of(answered.events()) == "x" * SIZE
