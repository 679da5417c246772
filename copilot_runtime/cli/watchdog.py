"""The watchdog of workers: it kills a process whose event loop does not go on.

The event loop of each worker writes a byte into a pipe every second or so. A process that is
stopped, or whose loop is held up, still has the socket that it listens at: the kernel goes on
giving it connections until it dies. In its last second it prints where its threads are.
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
"""Seconds without a byte after which the log names a worker."""

_LATE = 3.0
"""Seconds by which the parent is late when it was stopped itself, or the whole machine was."""


class Heartbeat:
    """The bytes of a worker, as its parent reads them from a pipe, which this closes."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._read)
        self.ready: asyncio.Future[bool] = self._loop.create_future()
        """Whether the worker listens, once that is known: its first byte says so."""
        self.is_open = True
        self._is_new = False

    def take(self) -> bool:
        """Return whether a byte has come since this was last asked."""
        is_new, self._is_new = self._is_new, False
        return is_new

    def close(self) -> None:
        """Read no more."""
        if self.is_open:
            self.is_open = False
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)

    def _read(self) -> None:
        data = os.read(self._descriptor, 4096)
        if not self.ready.done():
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
    """Whether its first byte has come: it takes as long as it likes to start."""
    silence: float = 0.0
    """Seconds since the last byte, as the watchdog counts them."""
    is_late: bool = False
    """Whether the log says that it does not answer."""
    is_printed: bool = False
    """Whether it was told to print its stacks since the last byte."""


class Watchdog:
    """Names workers that are silent for ten seconds, and kills those that are for `timeout`.

    A `timeout` of 0 kills none.
    """

    def __init__(self, timeout: float) -> None:
        self.interval = min(1.0, timeout / 4) if timeout else 1.0
        """Seconds between two bytes of a worker, and between two looks at all of them."""
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
        """Look at a worker from its first byte until it closes its pipe.

        `print_stacks` is called one interval before `kill`, and returns at once, as that does.
        """
        self._entries.append(_Entry(name, heartbeat, print_stacks, kill))

    async def run(self) -> None:
        """Look at the workers again and again."""
        while True:
            before = monotonic()
            await asyncio.sleep(self.interval)
            self.look(monotonic() - before)

    def look(self, elapsed: float) -> None:
        """Look at all workers, some seconds after the look before.

        When that is long ago, every worker has its full time again. Otherwise one interval counts,
        so that a parent that gets little of the CPU has patience with workers that do not, either.
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
            entry.kill()  # before the log, which waits while nobody reads it
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
