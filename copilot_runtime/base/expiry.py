"""Expire keys a fixed time after they were added, with one timer for all of them.

One event-loop timer per key would be expensive: the loop sorts thousands of timers, and nearly all
of them are cancelled.
"""

import asyncio
from collections.abc import Callable


class ExpiryQueue:
    """Calls `expire(key)` `seconds` after a key was added, unless the key is removed before."""

    def __init__(self, seconds: float, expire: Callable[[str], object]) -> None:
        self.seconds = seconds
        self._expire = expire
        self._deadlines: dict[str, float] = {}
        """Deadlines by key, in ascending order, since all keys have the same lifetime."""
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, key: str) -> None:
        """Add a key, or restart its lifetime."""
        loop = asyncio.get_running_loop()
        self._deadlines.pop(key, None)
        self._deadlines[key] = deadline = loop.time() + self.seconds
        if self._timer is None or self._loop is not loop:  # the timer of a loop that ended is lost
            self._loop = loop
            self._timer = loop.call_at(deadline, self._sweep, loop)

    def remove(self, key: str) -> None:
        """Discard a key; no error if it is absent."""
        self._deadlines.pop(key, None)

    def clear(self) -> None:
        """Discard all keys and cancel the timer."""
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
