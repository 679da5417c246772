"""`copilot-runtime serve --workers N`: several processes that listen at one address.

The kernel gives each new connection to one of them (`SO_REUSEPORT`). The parent only starts them,
and starts another one for each that ends. It has two pipes to each. Into one, a worker writes its
startup message when it listens, and a byte every second from then on: the watchdog kills it without
them. When the other is closed, it ends; the death of the parent closes it as well. In a folder that
the parent makes, workers have sockets for questions about their metrics.
"""

import asyncio
import faulthandler
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, gettempdir
from time import monotonic

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.cli.banner import show_banner
from copilot_runtime.cli.watchdog import Heartbeat, Watchdog
from copilot_runtime.telemetry.worker_metrics import WorkerMetrics

WORKER = "_COPILOT_RUNTIME_WORKER"
"""Environment variable of a worker process: its number, a colon, and the descriptor of the pipe for
its heartbeats."""

SIBLINGS = "_COPILOT_RUNTIME_SIBLINGS"
"""Environment variable with the number of workers, a colon, and the folder of their sockets. A
parent that is older than its workers (after an upgrade of the package) does not set it."""

HEARTBEAT = "_COPILOT_RUNTIME_HEARTBEAT"
"""Environment variable with a worker's heartbeat interval, in seconds. A parent that is older than
its workers does not set it, and closes the pipe after the first line."""

_SHORT = 5.0
"""Minimum lifetime of a worker, in seconds; after a shorter one, the restart is delayed with
backoff."""

_PAUSES = (0.5, 30.0)
"""Initial and maximum delay between failed starts, in seconds."""

_LONGEST_PARENT = 70
"""Maximum length of the parent path of the sockets' folder, in bytes: socket paths are limited to
104 to 108."""

logger = logging.getLogger(__name__)


class WorkerPipe:
    """A worker's pipes to its parent."""

    def __init__(
        self,
        ready: int,
        folder: str,
        metrics: WorkerMetrics | None,
        *,
        interval: float = 0.0,
        is_first: bool = False,
        count: int = 1,
    ) -> None:
        self.metrics = metrics
        self.count = count
        """The number of workers."""
        self.is_first = is_first
        """`True` for the worker that logs the messages that are the same in all workers."""
        self._pipe: int | None = ready
        self._interval = interval
        self._timer: asyncio.TimerHandle | None = None
        self._folder = folder

    @classmethod
    def find(cls) -> "WorkerPipe | None":
        """Return the pipes of this process, or `None` if it is not a worker."""
        number, _, ready = os.environ.pop(WORKER, "").partition(":")
        count, _, folder = os.environ.pop(SIBLINGS, "").partition(":")
        interval = float(os.environ.pop(HEARTBEAT, "0"))
        if not ready:
            return None
        os.set_inheritable(int(ready), False)
        os.set_blocking(int(ready), False)  # a suspended parent does not read
        metrics = WorkerMetrics(Path(folder), int(number), int(count)) if folder else None
        return cls(
            int(ready),
            folder,
            metrics,
            interval=interval,
            is_first=number == "1",
            count=int(count or 1),
        )

    async def report_ready(self, banner: str) -> None:
        """Send the parent the startup message once this process listens; stop when it ends.

        The event loop then writes a heartbeat about every second until `close`. SIGUSR1 prints the
        stacks of all threads to stderr, and then calls the application's own handler.
        """
        if self.metrics is not None:
            await self.metrics.open()
        has_handler = signal.getsignal(signal.SIGUSR1) != signal.SIG_DFL
        faulthandler.register(signal.SIGUSR1, 2, chain=has_handler)
        loop = asyncio.get_running_loop()
        # short enough for the parent to read it at once
        self._write(loop, banner.encode()[:4_000] + b"\0")
        loop.add_reader(sys.stdin.fileno(), self._end_with_parent, loop)

    def close(self) -> None:
        """Close the pipe and the metrics socket."""
        if self.metrics is not None:
            self.metrics.close()
        self._close_pipe()

    def _write(self, loop: asyncio.AbstractEventLoop, data: bytes) -> None:
        if self._pipe is None:
            return
        try:
            with suppress(BlockingIOError):  # the pipe is full: nothing is lost
                os.write(self._pipe, data)
        except OSError as error:
            logger.debug("The parent reads no heartbeats: %s", error)
            self._close_pipe()
            return
        if self._interval:
            self._timer = loop.call_later(self._interval, self._write, loop, b".")
        else:
            self._close_pipe()

    def _close_pipe(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    def _end_with_parent(self, loop: asyncio.AbstractEventLoop) -> None:
        if not os.read(sys.stdin.fileno(), 1):
            loop.remove_reader(sys.stdin.fileno())
            if self._folder:  # the parent died before its cleanup
                rmtree(self._folder, ignore_errors=True)
            os.kill(os.getpid(), signal.SIGTERM)


def _make_folder() -> AbstractContextManager[str]:
    """Create a private folder for sockets; yields an empty path if that fails.

    The folder is in `/tmp` if the default temporary folder has too long a path for a socket.
    """
    try:
        parent = gettempdir()
        if len(os.fsencode(parent)) > _LONGEST_PARENT:
            parent = "/tmp"  # noqa: S108 - the folder has an unpredictable name
        return TemporaryDirectory(prefix="copilot-workers-", dir=parent, ignore_cleanup_errors=True)
    except OSError as error:
        logger.warning("/metrics shows one worker alone: no folder for sockets: %s", error)
        return nullcontext("")


def set_port(words: Sequence[str], port: int) -> Sequence[str]:
    """Return command-line arguments with all `--port` options replaced by this port."""
    found = list[str]()
    for before, word in pairwise(["", *words]):
        if "--port" not in (before, word) and not word.startswith("--port="):
            found.append(word)
    return [*found, "--port", str(port)]


@dataclass(slots=True)
class _Worker:
    number: int
    process: asyncio.subprocess.Process
    heartbeat: Heartbeat
    started_at: float

    @property
    def ready(self) -> asyncio.Future[bool]:
        return self.heartbeat.ready

    def report(self) -> None:
        logger.info("Worker %d is process %d now", self.number, self.process.pid)

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)


class Workers:
    """Starts worker processes, and restarts those that end.

    SIGTERM and SIGINT stop all of them. SIGHUP replaces one after the other: each new worker
    listens before the old one ends. `environ` is added to their environment. `grace` is the time in
    seconds that a stopping worker has for its active answers. A worker whose event loop hangs for
    `timeout` seconds prints its stacks and is killed; 0 disables that.
    """

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        *,
        environ: Mapping[str, str],
        grace: float,
        timeout: float,
    ) -> None:
        self._command = command
        self._count = count
        self._environ = environ
        self._grace = grace
        self._folder = ""
        self._workers: dict[int, _Worker] = {}
        self._watchdog = Watchdog(timeout)
        self._keepers: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()

    async def run(self) -> int:
        """Serve until a signal. Returns the exit code."""
        with _make_folder() as self._folder:
            return await self._run()

    async def _run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        first = await asyncio.gather(*(self._start(number + 1) for number in range(self._count)))
        are_ready = asyncio.gather(*(worker.ready for worker in first))
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait((are_ready, stopping), return_when=asyncio.FIRST_COMPLETED)
        if self._is_stopping or not all(are_ready.result()):
            await self._end_all()
            return 0 if self._is_stopping else 1
        show_banner(first[0].heartbeat.banner)
        self._keepers = {asyncio.create_task(self._keep(worker)) for worker in first}
        self._keepers.add(asyncio.create_task(self._reload_on_signal()))
        self._keepers.add(asyncio.create_task(self._watchdog.run()))
        await stopping
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.wait(self._keepers)  # so that none of them starts another worker
        await self._end_all()
        return 0

    def _on_stop(self) -> None:
        if self._is_stopping:  # a second Ctrl-C: stop at once
            for worker in self._workers.values():
                worker.signal(signal.SIGINT)
        self._is_stopping = True
        self._stop.set()

    async def _start(self, number: int) -> _Worker:
        read, write = os.pipe()
        place = {
            WORKER: f"{number}:{write}",
            SIBLINGS: f"{self._count}:{self._folder}",
            HEARTBEAT: str(self._watchdog.interval),
        }
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env={**os.environ, **self._environ, **place},
                stdin=asyncio.subprocess.PIPE,
                pass_fds=(write,),
                start_new_session=True,  # only the parent handles Ctrl-C
            )
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        worker = _Worker(number, process, Heartbeat(read), monotonic())
        self._workers[process.pid] = worker
        name = f"Worker {number} (process {process.pid})"
        self._watchdog.add(
            *(name, worker.heartbeat),
            print_stacks=partial(worker.signal, signal.SIGUSR1),
            kill=partial(worker.signal, signal.SIGKILL),
        )
        return worker

    async def _keep(self, worker: _Worker) -> None:
        """Restart a worker whenever it ends."""
        pause = 0.0
        while True:
            code = await worker.process.wait()
            worker.heartbeat.close()  # its child processes may keep the pipe open
            if self._workers.pop(worker.process.pid, None) is None or self._is_stopping:
                return  # the end was intended
            pause = 0.0 if monotonic() - worker.started_at > _SHORT else _lengthen(pause)
            logger.error(
                "Worker %d (process %d) ended with %s; another is started%s",
                *(worker.number, worker.process.pid, _name_code(code)),
                f" in {pause:g} seconds" if pause else "",
            )
            worker = await self._start_again(worker.number, pause)
            if await worker.ready:
                worker.report()

    async def _start_again(self, number: int, pause: float) -> _Worker:
        """Start a worker after a delay, and retry until it succeeds."""
        while True:
            await asyncio.sleep(pause)
            try:
                return await self._start(number)
            except OSError as error:  # no memory, too many processes, or no executable
                pause = _lengthen(pause)
                logger.error(
                    "Worker %d cannot be started: %s; again in %g seconds", number, error, pause
                )

    async def _reload_on_signal(self) -> None:
        while True:
            await self._reload.wait()
            self._reload.clear()
            for worker in [*self._workers.values()]:
                try:
                    await self._replace(worker)
                except OSError as error:
                    logger.error("A new worker cannot be started: %s; the old one goes on", error)

    async def _replace(self, worker: _Worker) -> None:
        """Start a replacement for a worker, and stop the worker once the new one listens."""
        new = await self._start(worker.number)
        if not await new.ready:
            logger.error("A new worker does not start; the old ones go on. The log says why.")
            self._workers.pop(new.process.pid, None)
            return
        if (
            self._workers.pop(worker.process.pid, None) is None
        ):  # the old one has ended and was already restarted
            del self._workers[new.process.pid]
            new.signal(signal.SIGTERM)
            return
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


def _lengthen(pause: float) -> float:
    """Return the next delay of the exponential backoff, in seconds."""
    first, last = _PAUSES
    return min(max(first, 2 * pause), last)


def _name_code(code: int) -> str:
    if code >= 0:
        return f"code {code}"
    with suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


def check_workers(count: int, threads: str) -> None:
    """Raise `ConfigurationFailed` if the platform or the thread store supports one worker only."""
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
