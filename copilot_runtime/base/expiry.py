"""Forget things some time after they were added, with one timer for all of them.

A timer of the event loop for each would cost more than all that is done with it: among thousands it
has to be sorted in, and nearly all are cancelled.
"""

import asyncio
from collections.abc import Callable


class ExpiryQueue:
    """Calls `expire` with each key, `seconds` after it was added, unless it is removed before."""

    def __init__(self, seconds: float, expire: Callable[[str], object]) -> None:
        self.seconds = seconds
        self._expire = expire
        self._deadlines: dict[str, float] = {}
        """In the order in which they come, since all wait equally long."""
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, key: str) -> None:
        """Let the time of a key begin, once more if it is there."""
        loop = asyncio.get_running_loop()
        self._deadlines.pop(key, None)
        self._deadlines[key] = deadline = loop.time() + self.seconds
        if self._timer is None or self._loop is not loop:  # the timer of a loop that ended is lost
            self._loop = loop
            self._timer = loop.call_at(deadline, self._sweep, loop)

    def remove(self, key: str) -> None:
        """Let a key stay; there need not be one."""
        self._deadlines.pop(key, None)

    def clear(self) -> None:
        """Let all keys stay."""
        self._deadlines.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            return
        now, self._timer = loop.time(), None
        over: list[str] = []
        for key, deadline in self._deadlines.items():
            if deadline > now:
                self._timer = loop.call_at(deadline, self._sweep, loop)
                break
            over.append(key)
        for key in over:
            del self._deadlines[key]
        for key in over:
            self._expire(key)
