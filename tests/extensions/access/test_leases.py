"""Places of runs in Redis: what becomes of them when a server dies, or Redis is away."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime.adapters.scripted import Gate
from copilot_runtime.extensions.access.limits.counters import Counters, MemoryCounters, Place
from copilot_runtime.extensions.access.limits.limiter import Limiter
from copilot_runtime.security.quota import QuotaExceeded
from tests.extensions.access.credentials import issue_key
from tests.extensions.access.server import entering, settings_of
from tests.extensions.access.silent_limiter import ADA, LEASE_SECONDS, SECTION
from tests.extensions.cluster.redis_server import RedisServer, redis_server
from tests.in_one_test import in_one_test
from tests.processes import running
from tests.wire_agui.server import Parrot

pytestmark = pytest.mark.anyio

KEY = "copilot-runtime:limits:runs:user:owner:ada"


@pytest.fixture
async def redis(anyio_backend: str) -> AsyncGenerator[RedisServer, None]:
    pytest.importorskip("limits")
    pytest.importorskip("redis")
    with redis_server() as server, server.running():
        yield server


@asynccontextmanager
async def connecting(redis: RedisServer) -> AsyncGenerator[Any, None]:
    """Give a client of a test's own."""
    from redis.asyncio import Redis

    async with Redis.from_url(redis.url) as client:
        yield client


@asynccontextmanager
async def limiting(redis: RedisServer, **options: Any) -> AsyncGenerator[Limiter, None]:
    """Give a limiter of two runs at one time, as a server has it."""
    from copilot_runtime.extensions.access.limits.redis import RedisCounters

    counters = RedisCounters(redis.url)
    limiter = Limiter(SECTION, counters, **options)
    yield limiter
    await limiter.aclose()
    await counters.aclose()


async def admit(limiter: Limiter, run: str) -> Callable[[], None]:
    """Ask again until a run has a place."""
    while True:
        try:
            return await limiter.admit_run(ADA, ADA.owner, run)
        except QuotaExceeded:
            await asyncio.sleep(0)


async def test_places_of_a_server_that_was_killed_are_free_when_their_time_is_over(
    redis: RedisServer,
) -> None:
    async with limiting(redis) as limiter, connecting(redis) as client:
        with running(
            [sys.executable, "-m", "tests.extensions.access.silent_limiter", redis.url]
        ) as server:
            await asyncio.to_thread(server.until, "taken")
            first = await client.zscore(KEY, "r1")
            while await client.zscore(KEY, "r1") < first + LEASE_SECONDS:
                pass  # it lives, and renews them
            with pytest.raises(QuotaExceeded):
                await limiter.admit_run(ADA, ADA.owner, "r3")
            server.kill()

            await asyncio.gather(admit(limiter, "r3"), admit(limiter, "r4"))


async def test_a_server_that_lives_adds_its_places_again_where_redis_forgot_them(
    redis: RedisServer,
) -> None:
    async with limiting(redis, lease_seconds=LEASE_SECONDS) as one, limiting(redis) as other:
        for run in ("r1", "r2"):
            await one.admit_run(ADA, ADA.owner, run)
        async with connecting(redis) as client:
            await client.flushall()
            while await client.zcard(KEY) < 2:
                pass
        with pytest.raises(QuotaExceeded, match="You have 2 answers under way"):
            await other.admit_run(ADA, ADA.owner, "r3")


async def test_a_run_that_began_while_redis_was_away_has_its_place_soon(tmp_path: Path) -> None:
    pytest.importorskip("limits")
    pytest.importorskip("redis")
    with redis_server() as redis:
        async with limiting(redis, lease_seconds=LEASE_SECONDS) as limiter:
            await limiter.admit_run(ADA, ADA.owner, "r1")
            with redis.running():
                async with connecting(redis) as client:
                    while await client.zrange(KEY, 0, -1) != [b"r1"]:
                        pass


async def test_a_run_that_ended_while_redis_refused_is_not_counted_once_it_takes_it_again(
    redis: RedisServer, tmp_path: Path
) -> None:
    gate = Gate()
    limits = {"store": redis.url, "runs_at_once_per_user": 1}
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connecting(redis))
        settings = settings_of(tmp_path, limits=limits)
        server = await stack.enter_async_context(entering(tmp_path, Parrot(gate=gate), settings))
        ada = server.bearer(await issue_key(server.keys, "ada"))
        async with ada.running(thread="t1", run="r1") as answer:
            await answer.next()
            await client.config_set("min-replicas-to-write", 1)
            gate.release(50)
            await answer.rest()
        [(_, ends_at)] = await client.zrange(KEY, 0, -1, withscores=True)
        await client.config_set("min-replicas-to-write", 0)
        while await client.zcard(KEY):
            pass
        now, _ = await client.time()
        again = await ada.run(thread="t2", run="r2")

    assert now < ends_at, "its time was over"
    assert again.types()[-1] == "RUN_FINISHED"


@in_one_test("kind", ["memory", "redis"])
async def test_every_counter_renews_places_and_adds_those_that_are_missing(
    kind: str, redis: RedisServer
) -> None:
    from copilot_runtime.extensions.access.limits.redis import RedisCounters

    counters: Counters = MemoryCounters() if kind == "memory" else RedisCounters(redis.url)
    assert await counters.enter("p", "a", 2, 0.05)
    await counters.renew([Place("p", "a"), Place("p", "b"), Place("q", "c")], 100)
    found = [await counters.enter(name, "d", 2, 100) for name in ("p", "q")]
    await counters.leave([Place("p", "a"), Place("q", "c")])
    found.append(await counters.enter("p", "d", 2, 100))
    await counters.aclose()

    assert found == [False, True, True]


async def test_nothing_is_renewed_where_nobody_asks() -> None:
    limiter = Limiter(SECTION, MemoryCounters())
    release = await limiter.admit_run(ADA, ADA.owner, "r1")
    [task] = [task for task in asyncio.all_tasks() if task.get_name() == "leases"]
    release()

    await asyncio.wait((task,))
