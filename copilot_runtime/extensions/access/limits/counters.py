"""Where is counted: in the memory of a process, or in Redis for all processes together."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

MOST_COUNTED = 100_000
"""Windows in memory at one time: then those that are over are looked for."""


class Count(NamedTuple):
    """What was counted in a window, and how many seconds are left of it."""

    amount: int
    seconds_left: float


class Place(NamedTuple):
    """One of so many that there are of a name, and who has it."""

    name: str
    holder: str


class Counters:
    """Counts in windows that begin with what is counted first, and end after a time."""

    async def open(self) -> None:
        """See whether anything can be counted. It is logged if not, and is no error."""

    async def add(self, name: str, amount: int, seconds: int) -> Count:
        """Add to a window, and return what it has then. Raises `CountersFailed`."""
        raise NotImplementedError

    async def read(self, name: str) -> Count:
        """Return what a window has; nothing of one that is over. Raises `CountersFailed`."""
        raise NotImplementedError

    async def enter(self, name: str, holder: str, most: int, seconds: float) -> bool:
        """Take one of `most` places for a time at most, and return whether there was one.

        Raises `CountersFailed`.
        """
        raise NotImplementedError

    async def count_places(self, name: str) -> int:
        """Return how many places of a name are taken. Raises `CountersFailed`."""
        raise NotImplementedError

    async def renew(self, places: Sequence[Place], seconds: float) -> None:
        """Let places last for so long from now; those that are not there are taken, of whatever
        number. Raises `CountersFailed`.
        """
        raise NotImplementedError

    async def leave(self, places: Sequence[Place]) -> None:
        """Give places back. Raises `CountersFailed`."""
        raise NotImplementedError

    def find_problems(self) -> Sequence[str]:
        """Return `limits` while nothing can be counted: `/health/ready` has it."""
        return ()

    async def aclose(self) -> None:
        """Close connections."""


class CountersFailed(Exception):
    """Nothing can be counted at the moment."""


@dataclass(slots=True)
class _Window:
    amount: int
    ends_at: float


class MemoryCounters(Counters):
    """Counts in this process alone. It never waits, so two requests cannot both be the last."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: dict[str, _Window] = {}
        self._places: dict[str, dict[str, float]] = {}

    async def add(self, name: str, amount: int, seconds: int) -> Count:
        """Add to a window."""
        now = self._clock()
        window = self._windows.get(name)
        if window is None or window.ends_at <= now:
            if len(self._windows) >= MOST_COUNTED:
                self._forget(now)
            window = self._windows[name] = _Window(0, now + seconds)
        window.amount += amount
        return Count(window.amount, window.ends_at - now)

    async def read(self, name: str) -> Count:
        """Return what a window has."""
        now = self._clock()
        window = self._windows.get(name)
        if window is None or window.ends_at <= now:
            return Count(0, 0.0)
        return Count(window.amount, window.ends_at - now)

    async def enter(self, name: str, holder: str, most: int, seconds: float) -> bool:
        """Take a place."""
        now = self._clock()
        places = self._places.setdefault(name, {})
        for one in [one for one, ends_at in places.items() if ends_at <= now]:
            del places[one]
        if len(places) >= most and holder not in places:
            return False
        places[holder] = now + seconds
        return True

    async def count_places(self, name: str) -> int:
        """Return how many places are taken."""
        now = self._clock()
        return sum(ends_at > now for ends_at in self._places.get(name, {}).values())

    async def renew(self, places: Sequence[Place], seconds: float) -> None:
        """Let places last."""
        ends_at = self._clock() + seconds
        for place in places:
            self._places.setdefault(place.name, {})[place.holder] = ends_at

    async def leave(self, places: Sequence[Place]) -> None:
        """Give places back."""
        for place in places:
            holders = self._places.get(place.name, {})
            holders.pop(place.holder, None)
            if not holders:
                self._places.pop(place.name, None)

    def _forget(self, now: float) -> None:
        """Forget windows that are over; if none is, those that end first."""
        self._windows = {name: one for name, one in self._windows.items() if one.ends_at > now}
        while len(self._windows) >= MOST_COUNTED:
            soon = sorted(self._windows, key=lambda name: self._windows[name].ends_at)
            for name in soon[: MOST_COUNTED // 10]:
                del self._windows[name]
