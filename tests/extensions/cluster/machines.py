"""Server processes as on machines of their own: they share PostgreSQL, Redis and a bucket."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
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
