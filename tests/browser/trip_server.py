"""A server of `examples/react-v2` in a process of its own, which may end and come back."""

import asyncio
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from tests.processes import running

ROOT = Path(__file__).parents[2]


class TripServer:
    """The process inherits a socket that listens already: who connects early waits."""

    def __init__(self, listener: socket.socket, page: Path, model: str, threads: Path) -> None:
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self._listener = listener
        self._arguments = ("--page", page, "--model", model, "--threads", threads)
        self._stack = ExitStack()

    async def start(self) -> None:
        fd = self._listener.fileno()
        command = [sys.executable, "-m", "tests.browser.serve_trip", "--fd", str(fd)]
        program = self._stack.enter_context(
            running([*command, *self._arguments], pass_fds=[fd], cwd=ROOT)
        )
        self._stack.callback(program.end)

    async def end(self) -> None:
        """End the process and wait for it."""
        await asyncio.to_thread(self._stack.close)

    async def restart(self) -> None:
        await self.end()
        await self.start()


@asynccontextmanager
async def running_server(page: Path, model: str, threads: Path) -> AsyncGenerator[TripServer, None]:
    """Run a server for the length of a block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = TripServer(listener, page, model, threads)
        await server.start()
        try:
            yield server
        finally:
            await server.end()
