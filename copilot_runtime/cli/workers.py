"""`copilot-runtime serve --workers N`: processes that listen at one address.

The kernel gives each new connection to one of them (`SO_REUSEPORT`). The parent only starts them,
and starts another one for each that ends. It has a pipe to each: a worker writes a line into the
one when it listens, and ends when the other is closed, which the death of the parent does as well.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

import typer

from copilot_runtime.errors import ConfigurationFailed

WORKER = "_COPILOT_RUNTIME_WORKER"
"""The variable by which a process knows that it is a worker: its number, a colon, and the
descriptor into which it writes a line when it listens."""

_SHORT = 5.0
"""Seconds: a worker that ended sooner is started again later and later."""

_LONGEST_PAUSE = 30.0

logger = logging.getLogger(__name__)


class WorkerPipe:
    """The pipes of a worker to its parent."""

    def __init__(self, number: int, ready: int) -> None:
        self.number = number
        self._ready = ready

    @classmethod
    def find(cls) -> "WorkerPipe | None":
        """Return the pipes of this process if it is a worker."""
        number, _, ready = os.environ.pop(WORKER, "").partition(":")
        return cls(int(number), int(ready)) if ready else None

    def report_ready(self) -> None:
        """Let the parent know that this process listens, and end with the parent from now on."""
        os.write(self._ready, b"ready\n")
        os.close(self._ready)
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), _end_with_parent, loop)


def _end_with_parent(loop: asyncio.AbstractEventLoop) -> None:
    if not os.read(sys.stdin.fileno(), 1):
        loop.remove_reader(sys.stdin.fileno())
        os.kill(os.getpid(), signal.SIGTERM)


def reserve_port(host: str, port: int) -> socket.socket:
    """Return a socket that keeps a port for the workers, and takes no connections itself.

    Raises `OSError`.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    reserved = socket.socket(family, socket.SOCK_STREAM)
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind((host, port))
    except OSError:
        reserved.close()
        raise
    return reserved


@dataclass(slots=True)
class _Worker:
    number: int
    process: asyncio.subprocess.Process
    ready: asyncio.Task[bool]
    """Done when it listens, or has ended before."""
    started_at: float

    def report(self) -> None:
        logger.info("Worker %d is process %d now", self.number, self.process.pid)

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)


class Workers:
    """Starts workers, and keeps as many of them running as there are to be.

    SIGTERM and SIGINT end them all, and SIGHUP replaces one after the other: each new one listens
    before the old one ends. `environ` is added to their environment. `grace` is how many seconds
    one that ends has for its open answers.
    """

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        *,
        environ: Mapping[str, str],
        grace: float,
        banner: str,
    ) -> None:
        self._command = command
        self._count = count
        self._environ = environ
        self._grace = grace
        self._banner = banner
        self._workers: dict[int, _Worker] = {}
        self._keepers: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()

    async def run(self) -> int:
        """Serve until a signal stops it. Returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        first = await asyncio.gather(*(self._start(number + 1) for number in range(self._count)))
        are_ready = await asyncio.gather(*(worker.ready for worker in first))
        if not all(are_ready):
            await self._end_all()
            return 0 if self._is_stopping else 1
        typer.echo(self._banner)
        self._keepers = {asyncio.create_task(self._keep(worker)) for worker in first}
        reloading = asyncio.create_task(self._reload_on_signal())
        await self._stop.wait()
        reloading.cancel()
        await self._end_all()
        for keeper in self._keepers:
            keeper.cancel()
        return 0

    def _on_stop(self) -> None:
        if self._is_stopping:  # a second Ctrl-C: nobody waits any more
            for worker in self._workers.values():
                worker.signal(signal.SIGINT)
        self._is_stopping = True
        self._stop.set()

    async def _start(self, number: int) -> _Worker:
        read, write = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env={**os.environ, **self._environ, WORKER: f"{number}:{write}"},
                stdin=asyncio.subprocess.PIPE,
                pass_fds=(write,),
                start_new_session=True,  # Ctrl-C is for the parent
            )
        finally:
            os.close(write)
        ready = asyncio.create_task(_wait_until_ready(read))
        worker = _Worker(number, process, ready, monotonic())
        self._workers[process.pid] = worker
        return worker

    async def _keep(self, worker: _Worker) -> None:
        """Start another worker for each that ends."""
        pause = 0.0
        while True:
            code = await worker.process.wait()
            if self._workers.pop(worker.process.pid, None) is None or self._is_stopping:
                return  # it was to end
            pause = 0.0 if monotonic() - worker.started_at > _SHORT else max(0.5, 2 * pause)
            pause = min(pause, _LONGEST_PAUSE)
            logger.error(
                "Worker %d (process %d) ended with %s; another is started%s",
                *(worker.number, worker.process.pid, _name_code(code)),
                f" in {pause:g} seconds" if pause else "",
            )
            await asyncio.sleep(pause)
            worker = await self._start(worker.number)
            if await worker.ready:
                worker.report()

    async def _reload_on_signal(self) -> None:
        while True:
            await self._reload.wait()
            self._reload.clear()
            for worker in [*self._workers.values()]:
                await self._replace(worker)

    async def _replace(self, worker: _Worker) -> None:
        """Start a worker in the place of another one, which ends when the new one listens."""
        new = await self._start(worker.number)
        if not await new.ready:
            logger.error("A new worker does not start; the old ones go on. The log says why.")
            self._workers.pop(new.process.pid, None)
            return
        self._workers.pop(worker.process.pid, None)
        worker.signal(signal.SIGTERM)
        new.report()
        self._keepers.add(asyncio.create_task(self._keep(new)))

    async def _end_all(self) -> None:
        workers = [*self._workers.values()]
        for worker in workers:
            worker.signal(signal.SIGTERM)
        ends = [asyncio.create_task(worker.process.wait()) for worker in workers]
        if ends:
            _, late = await asyncio.wait(ends, timeout=self._grace)
            if late:
                for worker in workers:
                    worker.signal(signal.SIGKILL)
                await asyncio.wait(late)


async def _wait_until_ready(descriptor: int) -> bool:
    """Return whether a worker listens, once that is known."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[bool] = loop.create_future()

    def read() -> None:
        done.set_result(os.read(descriptor, 16) != b"")
        loop.remove_reader(descriptor)

    loop.add_reader(descriptor, read)
    try:
        return await done
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _name_code(code: int) -> str:
    if code >= 0:
        return f"code {code}"
    with suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


def check_workers(count: int, threads: str) -> None:
    """Raise `ConfigurationFailed` where several processes cannot do what one does."""
    if count == 1:
        return
    if not hasattr(socket, "SO_REUSEPORT") or sys.platform == "win32":
        raise ConfigurationFailed(
            "Several workers cannot listen at one port on this system.",
            hint="Use one worker; it serves thousands of streams.",
        )
    if threads.partition(":")[0] == "memory":
        raise ConfigurationFailed(
            f"{count} workers cannot share threads that are in the memory of one process.",
            hint="Set threads to sqlite:.copilot/threads.db, or to postgresql://...",
        )
