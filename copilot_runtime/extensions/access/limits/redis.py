"""Counters in Redis, shared by all processes and machines."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from math import ceil
from secrets import token_hex
from typing import Any

from copilot_runtime.api.scheme import AuthenticationUnavailable
from copilot_runtime.base.errors import MissingPackage
from copilot_runtime.extensions.access.limits.counters import Count, Counters, CountersFailed, Place
from copilot_runtime.extensions.access.service_tokens import FORGOTTEN, ServiceTokenInvalid

logger = logging.getLogger(__name__)

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
"""Deletes expired slots, and leases one if it is free, atomically.

It uses the clock of Redis: those of machines differ, and one that jumps would free all slots.
"""

_COUNT_PLACES = """
local time = redis.call('TIME')
return redis.call('ZCOUNT', KEYS[1], time[1] + time[2] / 1000000, '+inf')
"""

_RENEW = """
local time = redis.call('TIME')
local ends_at = time[1] + time[2] / 1000000 + ARGV[1]
for number, key in ipairs(KEYS) do
  redis.call('ZADD', key, ends_at, ARGV[number + 1])
  redis.call('PEXPIRE', key, math.ceil(ARGV[1] * 1000))
end
"""
"""Renews or adds all slots of a process in one round trip."""

_ADD_NONCE = """
local info = redis.pcall('INFO', 'server')
local server = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local noted = redis.call('GET', KEYS[1]) or ''
local noted_server, began = string.match(noted, '^(%w*) (%d+)$')
if noted_server ~= server or tonumber(began) > now then
  began = now
  redis.call('SET', KEYS[1], server .. ' ' .. string.format('%.0f', now))
end
local is_new = 1
if KEYS[2] and not redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2])
    and redis.call('GET', KEYS[2]) ~= ARGV[1] then is_new = 0 end
return {is_new, now - began}
"""
"""Adds a nonce; returns whether it is new, and for how many µs Redis has kept all nonces.

That period restarts if its start is missing, as in an empty Redis, or was stored by another Redis
process: after a restart from a file or a failover to a replica, the last nonces may be missing.
"""
_NONCES_SINCE = f"{_PREFIX}:nonces-since"

_TIMEOUT = 2.0
"""Timeout of a command in seconds, as a request waits for it."""
_MOST_AT_ONCE = 32
"""Maximum concurrent commands; the pool of redis-py has 100 connections."""
_REFUSAL_SECONDS = 60.0
"""Seconds for which a Redis that refuses writes counts as failed: it is full or a replica."""
_PAUSE = 1.0
"""Seconds after a failure without commands, as each limit would wait for the timeout."""


class RedisCounters(Counters):
    """Counters in Redis: windows by the package `limits`, slots in sorted sets. It fails fast.

    After a broken connection, a command is retried once, as Redis may have restarted. So Redis may
    receive a command twice.
    """

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        try:
            storage = import_module("limits.aio.storage")
            redis = import_module("redis.asyncio")
            retry = import_module("redis.asyncio.retry").Retry
            backoff = import_module("redis.backoff").NoBackoff
            errors = import_module("redis.exceptions")
            self._errors = (errors.RedisError, OSError, TimeoutError)
            self._refusal: type[Exception] = errors.ResponseError
        except ModuleNotFoundError as error:
            raise MissingPackage("Limits in Redis", error.name or "limits", "limits") from error
        url = url.removeprefix("async+").replace("redis+unix://", "unix://")
        pool = redis.ConnectionPool.from_url(
            url,
            socket_timeout=_TIMEOUT,
            socket_connect_timeout=_TIMEOUT,
            # not after a timeout: a request waits for one
            retry=retry(backoff(), 1, supported_errors=(errors.ConnectionError,)),
            # with RESP3, redis-py does not notice that an idle connection was closed
            protocol=2,
        )
        self._redis: Any = redis.Redis.from_pool(pool)
        self._storage: Any = storage.RedisStorage(
            url.replace("unix://", "redis+unix://"),
            implementation="redispy",
            key_prefix=_PREFIX,
            connection_pool=pool,
        )
        self._enter: Any = self._redis.register_script(_ENTER)
        self._count_places: Any = self._redis.register_script(_COUNT_PLACES)
        self._renew: Any = self._redis.register_script(_RENEW)
        self._add_nonce: Any = self._redis.register_script(_ADD_NONCE)
        self._free = asyncio.Semaphore(_MOST_AT_ONCE)
        self._clock = clock
        self._paused_until = self._refuses_until = self._look_at = float("-inf")
        self._is_away = False
        self._look: asyncio.Task[Exception | None] | None = None

    async def open(self) -> None:
        """Check Redis once, so that the readiness is known from the start.

        It also stores the start of the nonces' period: tokens signed later can be verified.
        """
        self._look_at = self._clock() + _PAUSE
        error = await self._ping()
        if error is not None:
            logger.error("Limits cannot be counted and are not enforced: %s", error)
            return
        with suppress(*self._errors):
            await self._add_nonce(keys=[_NONCES_SINCE])

    async def add(self, name: str, amount: int, seconds: int) -> Count:
        async with self._use_connection():
            total = await self._storage.incr(name, seconds, amount)
            ends_at = await self._storage.get_expiry(name) if total > 0 else 0
        return Count(total, max(0.0, ends_at - time.time()))

    async def read(self, name: str) -> Count:
        async with self._use_connection():
            total = await self._storage.get(name)
            ends_at = await self._storage.get_expiry(name) if total else 0
        return Count(total, max(0.0, ends_at - time.time()))

    async def enter(self, name: str, holder: str, most: int, seconds: float) -> bool:
        async with self._use_connection():
            found = await self._enter(keys=[f"{_PREFIX}:{name}"], args=[holder, most, seconds])
        return bool(found)

    async def count_places(self, name: str) -> int:
        async with self._use_connection():
            return await self._count_places(keys=[f"{_PREFIX}:{name}"])

    async def renew(self, places: Sequence[Place], seconds: float) -> None:
        keys = [f"{_PREFIX}:{place.name}" for place in places]
        async with self._use_connection():
            await self._renew(keys=keys, args=[seconds, *(place.holder for place in places)])

    async def leave(self, places: Sequence[Place]) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        for place in places:
            pipeline.zrem(f"{_PREFIX}:{place.name}", place.holder)
        async with self._use_connection():
            await pipeline.execute()

    async def add_nonce(self, nonce: str, holder: str, seconds: float) -> tuple[bool, float]:
        """Store a nonce of a holder for some seconds. Raises `CountersFailed`.

        Returns `True` if no other holder has it, and for how many seconds all nonces were kept.
        """
        keys = [_NONCES_SINCE, f"{_PREFIX}:nonce:{nonce}"]
        async with self._use_connection():
            is_new, lasted = await self._add_nonce(keys=keys, args=[holder, ceil(seconds * 1000)])
        return bool(is_new), lasted / 1_000_000

    async def find_persistence(self) -> bool | None:
        """Return whether Redis persists its data, or `None` if the query is not permitted."""
        try:
            found = await self._redis.config_get("save", "appendonly")
        except self._errors:
            return None
        return bool(found.get("save")) or found.get("appendonly") != "no"

    def find_failing_checks(self) -> Sequence[str]:
        """Return `limits` if the last command failed.

        It does not wait for Redis, but starts a check in the background, at most once a second.
        """
        now = self._clock()
        if (self._look is None or self._look.done()) and now >= self._look_at:
            self._look_at = now + _PAUSE
            self._look = asyncio.get_running_loop().create_task(self._ping(), name="limits")
        return ("limits",) if self._is_away or now < self._refuses_until else ()

    async def _ping(self) -> Exception | None:
        """Update the availability of Redis, and return the error if it fails."""
        try:
            await self._redis.ping()
        except self._errors as error:
            self._is_away = True
            return error
        self._is_away = False
        return None

    @asynccontextmanager
    async def _use_connection(self) -> AsyncGenerator[None]:
        """Wait for a free connection, without a timeout. Raises `CountersFailed`."""
        self._check_pause()
        async with self._free:
            self._check_pause()
            try:
                yield
            except self._errors as error:
                raise self._fail(error) from error

    def _check_pause(self) -> None:
        """Raise `CountersFailed` shortly after a failure, without another attempt."""
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
        if self._look is not None:
            self._look.cancel()
            await asyncio.wait((self._look,))
        await self._redis.aclose()


class RedisReplays:
    """Nonces of service tokens in Redis: a token can be used once on all machines together.

    A token is accepted only after the time at which it was signed. So a token signed after the
    start of Redis's period of nonces cannot have been used before it.
    """

    def __init__(self, counters: RedisCounters) -> None:
        self._counters = counters

    async def add(self, nonce: str, signed_at: float, expires_at: float) -> bool:
        """Store a nonce, and return `True` if it is new.

        Raises `ServiceTokenInvalid` if that is unknown, and `AuthenticationUnavailable`.
        """
        await asyncio.sleep(max(0.0, signed_at - time.time()))  # for a signer whose clock is ahead
        seconds = max(1.0, expires_at - time.time())
        holder = token_hex(16)  # this call: Redis may get it twice, which is no other use
        try:
            is_new, lasted = await self._counters.add_nonce(nonce, holder, seconds)
        except CountersFailed as error:  # else a token could be used again
            raise AuthenticationUnavailable("Tokens cannot be checked at the moment.") from error
        if is_new and time.time() - signed_at >= lasted:
            raise ServiceTokenInvalid(FORGOTTEN)
        return is_new
