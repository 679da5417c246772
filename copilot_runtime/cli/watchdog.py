"""Kill worker processes whose event loop hangs.

The event loop of each worker writes a heartbeat byte into a pipe about every second. A process that
is stopped, or whose event loop is blocked, still owns its listening socket: the kernel keeps
assigning connections to it until it dies. One interval before the kill, the worker prints its
stacks.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from time import monotonic

logger = logging.getLogger(__name__)

_WARN_AFTER = 10.0
"""Seconds without a heartbeat after which a warning names the worker."""

_LATE = 3.0
"""Delay of the parent's own loop, in seconds, that indicates that it or the whole machine was
suspended."""


class Heartbeat:
    """The parent's end of a worker's heartbeat pipe; closes the descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._read)
        self.ready: asyncio.Future[bool] = self._loop.create_future()
        """Resolves to `True` once the worker listens (first byte), or to `False` if it ends before.
        """
        self.banner = ""
        """The startup message of the worker, once it listens."""
        self.is_open = True
        self._is_new = False

    def take(self) -> bool:
        """Return `True` if a heartbeat has arrived since the last call."""
        is_new, self._is_new = self._is_new, False
        return is_new

    def close(self) -> None:
        """Stop reading and close the pipe."""
        if self.is_open:
            self.is_open = False
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)

    def _read(self) -> None:
        data = os.read(self._descriptor, 4096)
        if not self.ready.done():
            self.banner = data.partition(b"\0")[0].decode(errors="replace")
            self.ready.set_result(data != b"")
        self._is_new = True
        if not data:
            self.close()


@dataclass(slots=True)
class _Entry:
    name: str
    heartbeat: Heartbeat
    print_stacks: Callable[[], None]
    kill: Callable[[], None]
    is_ready: bool = False
    """`True` after the first heartbeat: the startup has no time limit."""
    silence: float = 0.0
    """Seconds since the last heartbeat, as counted by the watchdog."""
    is_late: bool = False
    """`True` if a warning about the worker was logged."""
    is_printed: bool = False
    """`True` if the worker was signalled to print its stacks since the last heartbeat."""


class Watchdog:
    """Warns about workers without heartbeats for ten seconds; kills them after `timeout` seconds.

    A `timeout` of 0 disables the kill.
    """

    def __init__(self, timeout: float) -> None:
        self.interval = min(1.0, timeout / 4) if timeout else 1.0
        """Seconds between two heartbeats of a worker, and between two checks of all workers."""
        self._timeout = timeout
        self._entries: list[_Entry] = []

    def add(
        self,
        name: str,
        heartbeat: Heartbeat,
        *,
        print_stacks: Callable[[], None],
        kill: Callable[[], None],
    ) -> None:
        """Monitor a worker from its first heartbeat until it closes its pipe.

        `print_stacks` is called one interval before `kill`. Neither may block.
        """
        self._entries.append(_Entry(name, heartbeat, print_stacks, kill))

    async def run(self) -> None:
        """Check the workers in an endless loop."""
        while True:
            before = monotonic()
            await asyncio.sleep(self.interval)
            self.look(monotonic() - before)

    def look(self, elapsed: float) -> None:
        """Check all workers, `elapsed` seconds after the last check.

        After a long pause of the parent, every worker's silence is reset. Otherwise only one
        interval is counted, so that a parent that gets little CPU time is lenient with workers that
        do not, either.
        """
        self._entries = [entry for entry in self._entries if entry.heartbeat.is_open]
        for entry in self._entries:
            if entry.heartbeat.take():
                if entry.is_late or entry.is_printed:
                    logger.info("%s answers again", entry.name)
                entry.is_ready, entry.silence = True, 0.0
                entry.is_late = entry.is_printed = False
            elif elapsed > self.interval + _LATE:
                entry.silence = 0.0
            elif entry.is_ready:
                entry.silence += self.interval
                self._judge(entry)

    def _judge(self, entry: _Entry) -> None:
        rest = (self._timeout or inf) - entry.silence
        if rest <= self.interval and not entry.is_printed:
            entry.is_printed = True
            entry.print_stacks()
        elif rest <= 0:
            entry.heartbeat.close()
            entry.kill()  # before logging, which blocks while nothing reads stderr
            logger.error(
                "%s has not answered for %g seconds: it is killed, and the stacks above show where "
                "it hung, unless it was stopped",
                *(entry.name, self._timeout),
            )
        elif entry.silence >= _WARN_AFTER and not entry.is_late:
            entry.is_late = True
            logger.warning(
                "%s has not answered for %g seconds: its event loop is held up",
                *(entry.name, _WARN_AFTER),
            )
