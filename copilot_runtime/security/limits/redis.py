"""Counting in Redis, for all processes and machines together."""

import asyncio
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from copilot_runtime.errors import MissingPackage
from copilot_runtime.security.authentication.scheme import AuthenticationUnavailable
from copilot_runtime.security.limits.counters import Count, Counters, CountersFailed

_PREFIX = "copilot-runtime:limits"
_ENTER = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local is_new = not redis.call('ZSCORE', KEYS[1], ARGV[1])
if is_new and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
redis.call('PEXPIRE', KEYS[1], math.ceil(ARGV[3] * 1000))
return 1
"""
"""Drops places whose time is over, and takes one if there is one, in one step.

By the clock of Redis: those of two machines differ, and one that jumps would free all places.
"""

_TIMEOUT = 2.0
"""Seconds: a request waits for it."""
_REFUSAL_SECONDS = 60.0
"""For which a Redis fails that answers, and counted nothing: one that is full, or a replica."""
_PAUSE = 1.0
"""Seconds after a failure in which Redis is not asked: each limit would wait again."""


class RedisCounters(Counters):
    """Windows by the package `limits`, places by a sorted set. It fails soon if Redis is away."""

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        try:
            storage = import_module("limits.aio.storage")
            redis = import_module("redis.asyncio")
            errors = import_module("redis").exceptions
            self._errors = (errors.RedisError, OSError, TimeoutError)
            self._refusal: type[Exception] = errors.ResponseError
        except ModuleNotFoundError as error:
            raise MissingPackage("Limits in Redis", error.name or "limits", "limits") from error
        options: Any = {"socket_timeout": _TIMEOUT, "socket_connect_timeout": _TIMEOUT}
        url = url.removeprefix("async+").replace("redis+unix://", "unix://")
        self._storage: Any = storage.RedisStorage(
            url.replace("unix://", "redis+unix://"),
            implementation="redispy",
            key_prefix=_PREFIX,
            **options,
        )
        self._redis: Any = redis.from_url(url, **options)
        self._enter: Any = self._redis.register_script(_ENTER)
        self._clock = clock
        self._paused_until = self._refuses_until = self._look_at = float("-inf")
        self._is_away = False
        self._look: asyncio.Task[None] | None = None

    async def add(self, name: str, amount: int, seconds: int) -> Count:
        """Add to a window."""
        self._check_pause()
        try:
            total = await self._storage.incr(name, seconds, amount)
            ends_at = await self._storage.get_expiry(name) if total > 0 else 0
        except self._errors as error:
            raise self._fail(error) from error
        return Count(total, max(0.0, ends_at - time.time()))

    async def read(self, name: str) -> Count:
        """Return what a window has."""
        self._check_pause()
        try:
            total = await self._storage.get(name)
            ends_at = await self._storage.get_expiry(name) if total else 0
        except self._errors as error:
            raise self._fail(error) from error
        return Count(total, max(0.0, ends_at - time.time()))

    async def enter(self, name: str, holder: str, most: int, seconds: float) -> bool:
        """Take a place."""
        self._check_pause()
        try:
            found = await self._enter(keys=[f"{_PREFIX}:{name}"], args=[holder, most, seconds])
        except self._errors as error:
            raise self._fail(error) from error
        return bool(found)

    async def leave(self, name: str, holder: str) -> None:
        """Give a place back."""
        self._check_pause()
        try:
            await self._redis.zrem(f"{_PREFIX}:{name}", holder)
        except self._errors as error:
            raise self._fail(error) from error

    def find_problems(self) -> Sequence[str]:
        """Return `limits` if Redis did not answer when it was asked last.

        Who watches a server does not wait: Redis is asked meanwhile, once a second at most.
        """
        now = self._clock()
        if (self._look is None or self._look.done()) and now >= self._look_at:
            self._look_at = now + _PAUSE
            self._look = asyncio.get_running_loop().create_task(self._ping(), name="limits")
        return ("limits",) if self._is_away or now < self._refuses_until else ()

    async def _ping(self) -> None:
        try:
            await self._redis.ping()
            self._is_away = False
        except self._errors:
            self._is_away = True

    def _check_pause(self) -> None:
        """Raise `CountersFailed` where Redis was away a moment ago: none waits for it twice."""
        if self._clock() < self._paused_until:
            raise CountersFailed("Redis did not answer a moment ago")

    def _fail(self, error: BaseException) -> CountersFailed:
        self._paused_until = self._clock() + _PAUSE
        if isinstance(error, self._refusal):
            self._refuses_until = self._clock() + _REFUSAL_SECONDS
        else:
            self._is_away = True
        return CountersFailed(str(error) or type(error).__name__)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._look is not None:
            self._look.cancel()
            await asyncio.wait((self._look,))
        await self._redis.aclose()
        await self._storage.bridge.storage.aclose()


class RedisReplays:
    """Nonces of service tokens in Redis: a token is good once on all machines together."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    async def add(self, nonce: str, seconds: float) -> bool:
        """Remember a nonce. Returns whether it was not known before."""
        try:
            count = await self._counters.add(f"nonce:{nonce}", 1, round(seconds) + 1)
        except CountersFailed as error:  # else a token could be used again
            raise AuthenticationUnavailable("Tokens cannot be checked at the moment.") from error
        return count.amount == 1
