"""A fair queue of files: users take turns, so that no user waits for all files of another.

The next slot goes to the user with the fewest files in slots, and of these to the one who has
waited longest since their last; of one user, the smallest file comes first. One slot is for small
files alone, and no user has all slots: a small file is read beside the large ones of another user.
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
"""Value of the header `Retry-After`, in seconds."""

_SLOTS = 3
_SMALL = 256_000
"""Maximum size in bytes of a file for the slot of small files."""


class TooManyFiles(LimitExceeded):
    """A user has too many pending uploads."""

    code = "TOO_MANY_FILES"
    status_code = 429


@dataclass(order=True)
class _Waiter:
    size: int
    number: int
    """The sequence number."""
    turn: "asyncio.Future[None]" = field(compare=False)

    @property
    def is_small(self) -> bool:
        return self.size <= _SMALL


class FairQueue:
    """Slots for reading files, and the queues of waiting files."""

    def __init__(self) -> None:
        self._numbers = count()
        self._waiting: dict[str, list[_Waiter]] = {}
        """A heap for each owner; the owner with the next turn is first."""
        self._running: Counter[str] = Counter()
        self._large = 0
        """Number of large files being read."""

    @asynccontextmanager
    async def slot(self, owner: str, size: int) -> AsyncGenerator[None]:
        """Wait for a slot for a file of `size` bytes, and hold it for a block."""
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
        """Assign free slots."""
        while self._running.total() < _SLOTS and (owner := self._find_next()) is not None:
            heap = self._waiting.pop(owner)
            waiter = heappop(heap)
            if heap:
                self._waiting[owner] = heap  # behind all others
            self._running[owner] += 1
            self._large += not waiter.is_small
            waiter.turn.set_result(None)

    def _find_next(self) -> str | None:
        """Return the owner of the file for the next slot, or `None` if no file is eligible."""
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
