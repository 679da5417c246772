"""A runtime behind a real socket, with a model that never runs out of words."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from copilot_runtime import ChatRequest, CopilotRuntime, Events, Settings
from copilot_runtime.adapters.scripted import Gate, say
from copilot_runtime.api.messages import TextMessage
from tests.wire_agui.http import Browser

PATH = "/copilotkit"


class Parrot:
    """A model that repeats the last word it heard, each answer with an id of its own."""

    def __init__(self, *words: str, gate: Gate | None = None) -> None:
        self.words = words
        self.gate = gate
        self.requests: list[ChatRequest] = []
        self.left = asyncio.Event()
        """Set when an answer was given up."""

    async def stream(self, request: ChatRequest) -> Events:
        self.requests.append(request)
        id = f"answer-{len(self.requests)}"
        try:
            for event in say(self.words or heard(request), id=id):
                if self.gate is not None:
                    await self.gate.wait()
                yield event
        except (asyncio.CancelledError, GeneratorExit):
            self.left.set()
            raise


def heard(request: ChatRequest) -> Sequence[str]:
    texts = [message.content for message in request.messages if isinstance(message, TextMessage)]
    return [f"You said {texts[-1]}" if texts else "You said nothing"]


class Server(uvicorn.Server):
    """A uvicorn that ends as soon as it is told, not when it looks the next time."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._told = asyncio.Event()

    def exit(self) -> None:
        self.should_exit = True
        self._told.set()

    async def main_loop(self) -> None:
        counter = 0
        while not await self.on_tick(counter):
            counter += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(self._told.wait(), 0.1)


@asynccontextmanager
async def serving(app: ASGIApp, **options: Any) -> AsyncGenerator[int, None]:
    """Serve an application with uvicorn on a free port of loopback."""
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        log_level="critical",
        ws="websockets-sansio",
        timeout_graceful_shutdown=1,
        **options,
    )
    server = Server(config)
    with config.bind_socket() as sock:
        sock.listen()  # a client may come before the server has started; it waits
        task = asyncio.create_task(server.serve(sockets=[sock]))
        try:
            yield sock.getsockname()[1]
        finally:
            server.exit()
            await task


@asynccontextmanager
async def browsing(
    adapter: Any = None, *, settings: Settings | None = None, **options: Any
) -> AsyncGenerator[Browser, None]:
    """Serve a runtime and yield a browser that looks at it."""
    runtime = CopilotRuntime(
        adapter or Parrot(), settings=settings or Settings(threads="memory"), **options
    )
    async with serving(runtime.app(path=PATH)) as port:
        yield Browser(port)
