"""Places of runs as leases: each lasts for a short time, and is renewed until its run ends."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any

from copilot_runtime.extensions.access.limits.counters import Counters, CountersFailed, Place

LEASE_SECONDS = 30.0
"""For which a place lasts: that of a process that was killed is free after it."""
_RENEWALS = 3
"""Times that a place is renewed while it lasts."""
_RETRY = 1.0
"""Seconds until what failed is tried again."""


class Leases:
    """Takes, renews and gives back the places of the runs of one process.

    A store that forgot a place, or was away when it was taken, has it at the next renewal. What
    cannot be given back is tried again until it ends by itself. A place that was taken several
    times is given back as often. `on_failure` gets what failed.
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
        """How often each place was taken, or is being taken."""
        self._held: set[Place] = set()
        self._new: set[Place] = set()
        """Places that are held, and of which the store does not know yet."""
        self._unreturned: dict[Place, float] = {}
        """Places that the store may still have, and when they end by themselves."""
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()

    async def take(self, place: Place, most: int) -> bool:
        """Take one of `most` places; return whether there was one, or nothing could be counted.

        It is given back in any case: also if there was none, or whoever waited has left.
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
        """Take a place of whatever number, soon."""
        self._uses[place] += 1
        self._unreturned.pop(place, None)
        if place not in self._held:
            self._held.add(place)
            self._new.add(place)
            self._start()
            self._wake.set()

    def give_back(self, place: Place) -> None:
        """Give a place back, soon."""
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
        """Send what is to be given back, once, and renew nothing until a place is taken."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        await self._try(self._return())

    def _start(self) -> None:
        """Start what renews, in no context: it outlives the run that starts it."""
        if self._task is None or self._task.done():
            self._wake = asyncio.Event()
            self._task = asyncio.create_task(self._renew(), name="leases", context=Context())

    async def _renew(self) -> None:
        """Renew places and give places back, one command after the other, until there are none."""
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
        """Wait so long, or until a place is held or given back."""
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
                if self._unreturned.get(place) == at:  # else it was taken meanwhile
                    del self._unreturned[place]

    async def _try(self, work: Coroutine[Any, Any, None]) -> bool:
        try:
            await work
        except CountersFailed as error:
            self._on_failure(error)
            return False
        return True

    def _forget(self, now: float) -> None:
        """Forget places that have ended by themselves."""
        self._unreturned = {place: at for place, at in self._unreturned.items() if at > now}
