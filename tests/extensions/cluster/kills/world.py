"""Server processes that share a store of threads, each of which can be killed and started again."""

import os
import select
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

from tests.extensions.cluster.kills.fork_server import ForkServer
from tests.extensions.cluster.kills.server import PATH, Effects
from tests.wire_agui.http import Browser


class Server:
    """One place for a process: another one takes it when that is killed."""

    def __init__(self, world: "World", number: int) -> None:
        self.number = number
        self.killed_at = 0.0
        self.browser = Browser(Path())
        self.settings = world.settings
        self._world = world
        self._pid = 0
        self._process = -1
        """A descriptor: the id of a process that ended may be another's."""

    async def start(self) -> None:
        path = self._world.folder / f"{next(self._world.numbers)}.sock"
        world, log = self._world, self._world.folder / "log"
        self._pid = await world.forks.fork(path, self.settings, world.effects.path, log)
        self._process = os.pidfd_open(self._pid)
        self.browser = Browser(path, PATH)

    async def wait_until_ready(self) -> None:
        """Return once the server answers. Raises `EOFError` or `OSError` if it ends before."""
        await self.browser.ask("GET", "/info")

    def has_ended(self) -> bool:
        """Return whether the process has ended by itself."""
        return self._process >= 0 and bool(select.select([self._process], [], [], 0)[0])

    def kill(self) -> None:
        """Kill the process if there is one, and return once it is dead."""
        if self._process < 0:
            return
        self.killed_at = monotonic()
        self._world.seconds += _read_cpu(self._pid)
        self.signal(signal.SIGKILL)
        _wait_for_end(self._process)
        os.close(self._process)
        self._process = -1
        assert isinstance(self.browser.where, Path)
        self.browser.where.unlink()

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # it has ended by itself
            signal.pidfd_send_signal(self._process, number)


class World:
    """The servers, their store and their effects."""

    def __init__(
        self, forks: ForkServer, folder: Path, settings: Mapping[str, Any], servers: int
    ) -> None:
        self.forks = forks
        self.folder = folder
        self.settings = settings
        self.effects = Effects(folder / "effects")
        self.numbers = count()
        self.seconds = 0.0
        """Of the processors, as the servers that were killed have used them."""
        self.servers = [Server(self, number) for number in range(servers)]

    async def start(self) -> None:
        for server in self.servers:
            await server.start()

    def others(self, server: Server) -> list[Server]:
        return [other for other in self.servers if other is not server]

    def read_log(self) -> Sequence[str]:
        """Return the last lines that the servers logged."""
        log = self.folder / "log"
        return log.read_text(errors="replace").splitlines()[-200:] if log.exists() else ()

    def stop(self) -> None:
        for server in self.servers:
            server.kill()


def _wait_for_end(process: int) -> None:
    poll = select.poll()
    poll.register(process, select.POLLIN)
    poll.poll(10_000)


def _read_cpu(pid: int) -> float:
    """Return how long a process has used a processor; 0 if it has ended by itself."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
