"""Counters of limits: their interface, and the implementation in the memory of a process."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

MOST_COUNTED = 100_000
"""Maximum windows in memory; beyond that, expired ones are deleted."""


class Count(NamedTuple):
    """The amount in a window, and the seconds until it ends."""

    amount: int
    seconds_left: float


class Place(NamedTuple):
    """One of a limited number of concurrency slots with a name, and its holder."""

    name: str
    holder: str


class Counters:
    """Counts amounts in fixed windows, which start with their first amount, and leases slots."""

    async def open(self) -> None:
        """Check the store; a failure is only logged."""

    async def add(self, name: str, amount: int, seconds: int) -> Count:
        """Add an amount to a window, and return its new count. Raises `CountersFailed`."""
        raise NotImplementedError

    async def read(self, name: str) -> Count:
        """Return the count of a window, 0 if it has ended. Raises `CountersFailed`."""
        raise NotImplementedError

    async def enter(self, name: str, holder: str, most: int, seconds: float) -> bool:
        """Lease one of `most` slots, and return `False` if all are taken. Raises
        `CountersFailed`.
        """
        raise NotImplementedError

    async def count_places(self, name: str) -> int:
        """Return the number of taken slots with a name. Raises `CountersFailed`."""
        raise NotImplementedError

    async def renew(self, places: Sequence[Place], seconds: float) -> None:
        """Renew the leases of slots; missing ones are added even beyond the limit.

        Raises `CountersFailed`.
        """
        raise NotImplementedError

    async def leave(self, places: Sequence[Place]) -> None:
        """Release slots. Raises `CountersFailed`."""
        raise NotImplementedError

    def find_failing_checks(self) -> Sequence[str]:
        """Return `limits` while the store fails, for `/health/ready`."""
        return ()

    async def aclose(self) -> None:
        """Close connections."""


class CountersFailed(Exception):
    """The store of counters is not available."""


@dataclass(slots=True)
class _Window:
    amount: int
    ends_at: float


class MemoryCounters(Counters):
    """Counters in the memory of this process. Methods never yield control, so they are atomic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: dict[str, _Window] = {}
        self._places: dict[str, dict[str, float]] = {}

    async def add(self, name: str, amount: int, seconds: int) -> Count:
        now = self._clock()
        window = self._windows.get(name)
        if window is None or window.ends_at <= now:
            if len(self._windows) >= MOST_COUNTED:
                self._forget(now)
            window = self._windows[name] = _Window(0, now + seconds)
        window.amount += amount
        return Count(window.amount, window.ends_at - now)

    async def read(self, name: str) -> Count:
        now = self._clock()
        window = self._windows.get(name)
        if window is None or window.ends_at <= now:
            return Count(0, 0.0)
        return Count(window.amount, window.ends_at - now)

    async def enter(self, name: str, holder: str, most: int, seconds: float) -> bool:
        now = self._clock()
        places = self._places.setdefault(name, {})
        for one in [one for one, ends_at in places.items() if ends_at <= now]:
            del places[one]
        if len(places) >= most and holder not in places:
            return False
        places[holder] = now + seconds
        return True

    async def count_places(self, name: str) -> int:
        now = self._clock()
        return sum(ends_at > now for ends_at in self._places.get(name, {}).values())

    async def renew(self, places: Sequence[Place], seconds: float) -> None:
        ends_at = self._clock() + seconds
        for place in places:
            self._places.setdefault(place.name, {})[place.holder] = ends_at

    async def leave(self, places: Sequence[Place]) -> None:
        for place in places:
            holders = self._places.get(place.name, {})
            holders.pop(place.holder, None)
            if not holders:
                self._places.pop(place.name, None)

    def _forget(self, now: float) -> None:
        """Delete ended windows; if too many remain, those that end first."""
        self._windows = {name: one for name, one in self._windows.items() if one.ends_at > now}
        while len(self._windows) >= MOST_COUNTED:
            soon = sorted(self._windows, key=lambda name: self._windows[name].ends_at)
            for name in soon[: MOST_COUNTED // 10]:
                del self._windows[name]
