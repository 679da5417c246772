"""Server processes as on machines of their own: they share PostgreSQL, Redis and a bucket."""

import asyncio
import os
import re
import socket
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

from tests.processes import Program, running

ROOT = Path(__file__).parents[3]
TRIP = f"{ROOT}/tests/extensions/cluster/trip.py:runtime"


class Machine:
    """One server, in a folder of its own: nothing of its disk is shared."""

    def __init__(self, folder: Path, config: str, environ: Mapping[str, str]) -> None:
        folder.mkdir()
        (folder / "copilot.yml").write_text(config)
        self.port = _find_port()
        self._folder = folder
        # no settings of the tests: they would win over the file
        inherited = {name: it for name, it in os.environ.items() if "COPILOT_" not in name}
        self._environ = {**inherited, "PYTHONPATH": str(ROOT), **environ}
        self._stack = ExitStack()
        self._program: Program | None = None

    def set_stop_timeout(self, seconds: int) -> None:
        """Give open answers another time to end than `copilot.yml` says."""
        self._environ["COPILOT_STOP_TIMEOUT"] = str(seconds)

    def start(self) -> None:
        """Start the server; `wait` returns once it listens."""
        words = [sys.executable, "-m", "copilot_runtime", "serve", TRIP, "--port", str(self.port)]
        started = running(words, cwd=self._folder, env=self._environ)
        self._program = self._stack.enter_context(started)

    async def wait(self) -> None:
        assert self._program
        await asyncio.to_thread(self._program.until, "runtimeUrl")

    def terminate(self) -> None:
        """Tell the server to end."""
        assert self._program
        self._program.process.terminate()

    async def end(self) -> str:
        """Wait until the server has ended, at once if it was not told; return its log."""
        assert self._program
        program, self._program = self._program, None
        program.process.terminate()
        await asyncio.to_thread(program.process.wait)
        await asyncio.to_thread(self._stack.close)
        return program.errors.text()


@asynccontextmanager
async def running_machines(
    count: int, folder: Path, config: str, **environ: str
) -> AsyncGenerator[Sequence[Machine], None]:
    """Run some servers of one `copilot.yml` for the length of a block.

    The first one is patient: it waits for answers that are open when it is told to end.
    """
    machines = [Machine(folder / f"machine{number}", config, environ) for number in range(count)]
    machines[0].set_stop_timeout(60)
    for machine in machines:
        machine.start()
    try:
        for machine in machines:
            await machine.wait()
        yield machines
    finally:
        for machine in machines:
            machine.terminate()
        for machine in machines:
            await machine.end()


def _find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


_HEAD_LIMIT = 1024 * 1024
_CONNECTION = re.compile(rb"\r\nconnection:[^\r]*", re.IGNORECASE)
_UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)


class Balancer:
    """Passes each request to the next of some ports, and bytes through as they come.

    What is not below `path` is a page, and goes to the port `page`. A request whose server does
    not take connections goes to the one after it; one that was passed on is never sent again.
    """

    def __init__(self, ports: Sequence[int], page: int = 0, path: str = "/graphql") -> None:
        self.ports = [*ports]
        self.url = ""
        self.served: list[tuple[int, str]] = []
        """To which port each request went, and what it was."""
        self.avoided: set[int] = set()
        """Ports that get nothing for now, so that others must answer."""
        self._page = page
        self._path = path.encode()
        self._turn = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def count(self) -> Counter[int]:
        """Return how many requests each port got."""
        return Counter(port for port, _ in self.served)

    def find_port(self, request: str) -> int:
        """Return where the last request of these words went, such as `POST /graphql/agent`."""
        return next(port for port, line in reversed(self.served) if line.startswith(request))

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection in a task of ours, so that `close` can end it."""
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End every connection that is still open."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            try:
                head = await reader.readuntil(b"\r\n\r\n")
                inward, outward = await self._connect(head)
                try:
                    outward.write(_close_after(head))
                    await _join((reader, outward), (inward, writer))
                finally:
                    outward.close()
            finally:
                writer.close()

    async def _connect(self, head: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to whose turn it is. Raises `OSError` if nobody takes connections."""
        request = head.split(b" HTTP/", 1)[0]
        if not request.split(b" ", 1)[1].startswith(self._path):
            return await asyncio.open_connection("127.0.0.1", self._page)
        start, self._turn = self._turn, self._turn + 1
        order = [self.ports[(start + at) % len(self.ports)] for at in range(len(self.ports))]
        for port in order:
            if port not in self.avoided:
                with suppress(OSError):
                    return await self._connect_to(port, request)
        raise ConnectionRefusedError

    async def _connect_to(
        self, port: int, request: bytes
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        streams = await asyncio.open_connection("127.0.0.1", port, limit=_HEAD_LIMIT)
        self.served.append((port, request.decode("latin-1")))
        return streams


def _close_after(head: bytes) -> bytes:
    """Ask for the end of the connection after the answer: the next request is for the next one."""
    if _UPGRADE.search(head):
        return head
    return _CONNECTION.sub(b"", head)[:-2] + b"connection: close\r\n\r\n"


async def _join(*ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    """Pass bytes along both ways until one of them ends: the answer, or whoever waits for it."""
    passing = [asyncio.create_task(_pass(*way)) for way in ways]
    try:
        await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in passing:
            task.cancel()
        await asyncio.gather(*passing, return_exceptions=True)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


@asynccontextmanager
async def balancing(
    ports: Sequence[int], page: int = 0, path: str = "/graphql"
) -> AsyncGenerator[Balancer, None]:
    """Run a balancer on a free port for the length of a block."""
    balancer = Balancer(ports, page, path)
    server = await asyncio.start_server(
        balancer.accept, "127.0.0.1", 0, limit=_HEAD_LIMIT, backlog=256
    )
    balancer.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield balancer
    finally:
        server.close()
        await balancer.close()
