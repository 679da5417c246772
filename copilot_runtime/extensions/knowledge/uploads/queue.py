"""Which of many files is read next: users take turns, so that nobody waits for all of another's.

The next slot goes to the user with the fewest files in slots, and of these to the one who has
waited longest since their last; of one user, the smallest file comes first. One slot is for small
files alone, and nobody has all slots: a note of one is read beside the large tables of another.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from copilot_runtime.base.errors import LimitExceeded

RETRY_AFTER = 10
"""Seconds after which it is worth a try to send a file again."""

_SLOTS = 3
_SMALL = 256_000
"""Bytes of a file that needs no more than the slot for small ones."""


class TooManyFiles(LimitExceeded):
    """So many files of somebody are on their way that one more has to come later."""

    code = "TOO_MANY_FILES"
    status_code = 429


@dataclass(order=True)
class _Waiter:
    size: int
    number: int
    """How many came before it."""
    turn: "asyncio.Future[None]" = field(compare=False)

    @property
    def is_small(self) -> bool:
        return self.size <= _SMALL


class FairQueue:
    """Slots in which files are read, and who waits for one."""

    def __init__(self) -> None:
        self._numbers = count()
        self._waiting: dict[str, list[_Waiter]] = {}
        """A heap for each owner; whose turn is next, is first."""
        self._running: Counter[str] = Counter()
        self._large = 0
        """How many files that are not small are read now."""

    @asynccontextmanager
    async def slot(self, owner: str, size: int) -> AsyncGenerator[None]:
        """Wait for the turn of a file of so many bytes, and hold a slot for it."""
        turn = asyncio.get_running_loop().create_future()
        waiter = _Waiter(size, next(self._numbers), turn)
        heappush(self._waiting.setdefault(owner, []), waiter)
        self._fill()
        try:
            await turn
            yield
        finally:
            if turn.cancelled():  # while it waited
                self._forget(owner, waiter)
            else:
                self._running[owner] -= 1
                self._large -= not waiter.is_small
                self._fill()

    def _fill(self) -> None:
        """Give free slots away."""
        while self._running.total() < _SLOTS and (owner := self._find_next()) is not None:
            heap = self._waiting.pop(owner)
            waiter = heappop(heap)
            if heap:
                self._waiting[owner] = heap  # behind all others
            self._running[owner] += 1
            self._large += not waiter.is_small
            waiter.turn.set_result(None)

    def _find_next(self) -> str | None:
        """Return the owner whose file gets the next slot; None if none may have it."""
        owners = [
            owner
            for owner, (first, *_) in self._waiting.items()
            if first.is_small or self._large < _SLOTS - 1
        ]
        owner = min(owners, key=self._running.__getitem__, default=None)
        return None if owner is None or self._running[owner] >= _SLOTS - 1 else owner

    def _forget(self, owner: str, waiter: _Waiter) -> None:
        heap = [it for it in self._waiting[owner] if it is not waiter]
        if heap:
            heap.sort()
            self._waiting[owner] = heap
        else:
            del self._waiting[owner]
