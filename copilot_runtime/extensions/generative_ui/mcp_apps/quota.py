"""How much each user may ask of MCP servers by way of frames."""

import asyncio
from collections import OrderedDict
from time import monotonic

from copilot_runtime.base.errors import LimitExceeded

_AT_ONCE = 8
"""Requests of one user that servers work on at the same time."""

_MOST_PENDING = 24
"""Requests of one user that wait for that."""

_MOST_USERS = 10_000


class RequestQuota:
    """So many requests a second, and so many at once, for each user: a bucket of tokens."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._users: OrderedDict[str, UserQuota] = OrderedDict()

    def enter(self, user: str) -> "UserQuota":
        """Count a request, and return what it has to enter. Raises `LimitExceeded`."""
        quota = self._users.get(user)
        if quota is None:
            self._forget_oldest()
            quota = self._users[user] = UserQuota(self._per_second)
        self._users.move_to_end(user)
        quota.count()
        return quota

    def _forget_oldest(self) -> None:
        """Make room for a user. Raises `LimitExceeded` if nobody can be forgotten.

        Who is forgotten gets nothing back: only those who have waited long enough are.
        """
        while len(self._users) >= _MOST_USERS:
            oldest = next(iter(self._users))
            if not self._users[oldest].is_idle:
                raise LimitExceeded("Too many people use MCP apps. Try again in a second.")
            del self._users[oldest]


class UserQuota:
    """The requests of one user. Entered, it waits for one of the places."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._most = max(1.0, 2 * per_second)
        self._tokens = self._most
        self._last = monotonic()
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._pending = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing is lost with it: no request is pending, and it has all its tokens."""
        return not self._pending and self._refill() >= self._most

    def count(self) -> None:
        """Take a token. Raises `LimitExceeded` if there is none, or too many requests wait."""
        self._tokens = self._refill()
        self._last = monotonic()
        if self._tokens < 1 or self._pending >= _AT_ONCE + _MOST_PENDING:
            raise LimitExceeded("Too many requests of MCP apps. Try again in a second.")
        self._tokens -= 1

    def _refill(self) -> float:
        return min(self._most, self._tokens + (monotonic() - self._last) * self._per_second)

    async def __aenter__(self) -> None:
        self._pending += 1
        try:
            await self._places.acquire()
        except BaseException:
            self._pending -= 1
            raise

    async def __aexit__(self, *_: object) -> None:
        self._pending -= 1
        self._places.release()
