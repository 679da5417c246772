"""A server of `examples/react-v2` in a process of its own, which may end and come back."""

import asyncio
import os
import shlex
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.processes import running

ROOT = Path(__file__).parents[2]

# another runtime can be put in our place, to see whether both do the same
SERVE = os.environ.get("BROWSER_TESTS_SERVE_TRIP", f"{sys.executable} -m tests.browser.serve_trip")


class TripServer:
    """The process inherits a socket that listens already: who connects early waits."""

    def __init__(self, listener: socket.socket, page: Path, model: str, threads: Path) -> None:
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self._listener = listener
        self._arguments = ("--page", page, "--model", model, "--threads", threads)
        self._stack = ExitStack()

    async def start(self) -> None:
        fd = self._listener.fileno()
        command = [*shlex.split(SERVE), "--fd", str(fd), *self._arguments]
        program = self._stack.enter_context(running(command, pass_fds=[fd], cwd=ROOT))
        self._stack.callback(program.end)

    async def end(self) -> None:
        """End the process and wait for it."""
        await asyncio.to_thread(self._stack.close)

    async def restart(self) -> None:
        await self.end()
        await self.start()
