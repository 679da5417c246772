"""Concurrency slots of runs as leases: each expires soon, and is renewed until its run ends."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from time import monotonic
from typing import Any

from copilot_runtime.extensions.access.limits.counters import Counters, CountersFailed, Place

LEASE_SECONDS = 30.0
"""Seconds until a lease expires, and with it the slots of a killed process."""
_RENEWALS = 3
"""Renewals per lease."""
_RETRY = 1.0
"""Seconds before a failed operation is retried."""


class Leases:
    """Acquires, renews and releases the slots of one process.

    A slot that the store lost, or could not store, is added again at the next renewal. A failed
    release is retried until the lease expires. A slot acquired several times must be released as
    often. `on_failure` is called with each error.
    """

    def __init__(
        self,
        counters: Counters,
        on_failure: Callable[[CountersFailed], None],
        seconds: float = LEASE_SECONDS,
    ) -> None:
        self._counters = counters
        self._on_failure = on_failure
        self._seconds = seconds
        self._uses: Counter[Place] = Counter()
        """The number of acquisitions of each slot, including pending ones."""
        self._held: set[Place] = set()
        self._new: set[Place] = set()
        """Slots that are held, but not stored yet."""
        self._unreturned: dict[Place, float] = {}
        """Released slots that the store may still have, with the times of their expiry."""
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()

    async def take(self, place: Place, most: int) -> bool:
        """Acquire one of `most` slots; return `False` if all are taken.

        Returns `True` if the store fails. The caller must release the slot in any case, even if
        none was free or the call was cancelled.
        """
        self._uses[place] += 1
        try:
            is_free = await self._counters.enter(place.name, place.holder, most, self._seconds)
        except CountersFailed as error:
            self._on_failure(error)
            is_free = True
        if is_free:
            self._held.add(place)
            if self._unreturned.pop(place, None) is not None:  # it may be on its way back
                self._new.add(place)
            self._start()
        return is_free

    def hold(self, place: Place) -> None:
        """Acquire a slot asynchronously, even beyond the limit."""
        self._uses[place] += 1
        self._unreturned.pop(place, None)
        if place not in self._held:
            self._held.add(place)
            self._new.add(place)
            self._start()
            self._wake.set()

    def give_back(self, place: Place) -> None:
        """Release a slot asynchronously."""
        self._uses[place] -= 1
        if self._uses[place] > 0:
            return
        del self._uses[place]
        self._held.discard(place)
        self._new.discard(place)
        self._unreturned[place] = asyncio.get_running_loop().time() + self._seconds
        self._start()
        self._wake.set()

    async def aclose(self) -> None:
        """Send pending releases once, and stop the renewals."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        await self._try(self._return())

    def _start(self) -> None:
        """Start the renewal task, in an empty context, as it outlives the run that starts it."""
        if self._task is None or self._task.done():
            self._wake = asyncio.Event()
            self._task = asyncio.create_task(self._renew(), name="leases", context=Context())

    async def _renew(self) -> None:
        """Renew and release slots, one command at a time, until there are none."""
        now = asyncio.get_running_loop().time
        renew_at = now() + self._seconds / _RENEWALS
        while self._held or self._unreturned:
            if not (self._unreturned or self._new):
                await self._wait(renew_at - now())
            has_failed = not await self._try(self._add())
            has_failed |= not await self._try(self._return())
            if now() >= renew_at:
                if await self._try(self._counters.renew([*self._held], self._seconds)):
                    renew_at = now() + self._seconds / _RENEWALS
                else:
                    has_failed = True
            if has_failed:
                self._forget(now())
                await asyncio.sleep(_RETRY)

    async def _wait(self, seconds: float) -> None:
        """Wait for the given time, or until a slot is added or released."""
        self._wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    async def _add(self) -> None:
        if places := [*self._new]:
            await self._counters.renew(places, self._seconds)
            self._new.difference_update(places)

    async def _return(self) -> None:
        if places := {**self._unreturned}:
            await self._counters.leave([*places])
            for place, at in places.items():
                if self._unreturned.get(place) == at:  # else it was acquired again meanwhile
                    del self._unreturned[place]

    async def _try(self, work: Coroutine[Any, Any, None]) -> bool:
        try:
            await work
        except CountersFailed as error:
            self._on_failure(error)
            return False
        return True

    def _forget(self, now: float) -> None:
        """Drop released slots whose leases have expired."""
        self._unreturned = {place: at for place, at in self._unreturned.items() if at > now}


_INTERVAL = 0.0025
"""Seconds between refusals of one subject: 400 per second, which cost some percent of a core."""

_LONGEST_WAIT = 2.0
"""Maximum delay of a refusal in seconds, as it occupies a connection."""

_LOG_EVERY = 60.0
"""Seconds between log lines about one subject."""

_MOST_SUBJECTS = 10_000
"""Maximum subjects in memory; beyond that, all are cleared."""

logger = logging.getLogger(__name__)


class _Refusals:
    """The times of a subject's next refusal and next log line."""

    __slots__ = ("next_answer", "next_line")

    def __init__(self) -> None:
        self.next_answer = 0.0
        self.next_line = 0.0


class Throttle:
    """Spaces out the refusals of each subject; the first one is never delayed."""

    def __init__(self) -> None:
        self._subjects: dict[str, _Refusals] = {}

    async def hold_back(self, subject: str, reason: str) -> None:
        """Wait until a refusal may be sent; log its reason at most once a minute."""
        now = monotonic()
        refusals = self._find(subject)
        if now >= refusals.next_line:
            refusals.next_line = now + _LOG_EVERY
            logger.info("A request was one too many: %s", reason)
        at = max(now, refusals.next_answer)
        refusals.next_answer = min(at, now + _LONGEST_WAIT) + _INTERVAL
        if at > now:
            await asyncio.sleep(min(at - now, _LONGEST_WAIT))

    def _find(self, subject: str) -> _Refusals:
        refusals = self._subjects.get(subject)
        if refusals is None:
            if len(self._subjects) >= _MOST_SUBJECTS:
                self._subjects.clear()
            refusals = self._subjects[subject] = _Refusals()
        return refusals
