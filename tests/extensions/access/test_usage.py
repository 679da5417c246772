"""Limits of tokens and dollars also count answers that end before the provider has counted."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime import ChatRequest, Events
from copilot_runtime.adapters.scripted import Gate, ScriptedAdapter, call, say
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api.adapter import Adapter, ModelEndpoint
from copilot_runtime.api.events import Usage
from copilot_runtime.base.errors import NetworkError, RateLimited
from copilot_runtime.extensions.access.limits.counters import Counters, MemoryCounters, Place
from copilot_runtime.extensions.access.limits.limiter import Limiter
from copilot_runtime.extensions.assistants.agent import AssistantAgent
from copilot_runtime.security.quota import QuotaExceeded
from tests.extensions.access.credentials import (
    ADA,
    LEASE_SECONDS,
    SECTION,
    entering,
    issue_key,
    settings_of,
)
from tests.extensions.assistants.test_agent import write_files
from tests.extensions.cluster.redis_server import RedisServer, redis_server
from tests.extensions.planner.crew import build_planner, write_plan
from tests.in_one_test import in_one_test
from tests.processes import running
from tests.wire.client import chat
from tests.wire_agui.http import Browser, run_input, user
from tests.wire_agui.server import Parrot

pytestmark = pytest.mark.anyio

CHUNK = "x" * 300
"""100 tokens of an answer."""
QUESTION = "y" * 3000
"""1,000 tokens of a question."""
TOOLS = 400
"""The most tokens of what the runtime itself adds to a question."""
CHUNKS = 20


class LongWriter(Adapter):
    """A model that says with its last event what it has used."""

    def __init__(
        self, *, usage: Usage | None = None, error: Exception | None = None, chunks: int = CHUNKS
    ) -> None:
        self.gate = Gate()
        self.usage = usage
        self.error = error
        self.chunks = chunks

    async def stream(self, request: ChatRequest) -> Events:
        for event in say([CHUNK] * self.chunks)[: None if self.chunks else 0]:
            await self.gate.wait()
            yield event
        if self.error is not None:
            raise self.error
        if self.usage is not None:
            yield self.usage

    def endpoint(self, request: ChatRequest) -> ModelEndpoint:
        return ModelEndpoint("openai", "gpt-4o")


@asynccontextmanager
async def asking(path: Path, model: Adapter, **options: Any) -> AsyncGenerator[Browser, None]:
    """Yield the browser of somebody whose tokens and dollars are limited."""
    limits = {"tokens_per_user": "1000000/day", "dollars_per_user": "1000/day"}
    settings = settings_of(path, limits=limits)
    async with entering(path, model, settings, **options) as server:
        yield server.bearer(await issue_key(server.keys, "ada"))


async def read_used(browser: Browser) -> Sequence[float]:
    """Return the tokens and the dollars that somebody has used."""
    statuses = (await browser.ask("GET", "/access/whoami")).json()["limits"]
    used = {status["kind"]: status["used"] for status in statuses}
    return used["tokens"], used["dollars"]


async def wait_for_usage(browser: Browser, least: int = 1) -> Sequence[float]:
    """Return what somebody has used, once that is enough: a run is counted after its end."""
    async with asyncio.timeout(20):
        while (used := await read_used(browser))[0] < least:
            pass
    return used


async def begin(model: LongWriter, chunks: int) -> None:
    """Return once the model has written so many chunks."""
    model.gate.release(1 + chunks)
    async with asyncio.timeout(20):
        await model.gate.wait_for_event()


async def test_a_stopped_answer_counts_what_was_sent_and_written(tmp_path: Path) -> None:
    model = LongWriter()
    async with (
        asking(tmp_path, model) as ada,
        ada.running(messages=[user(QUESTION)]) as answer,
    ):
        await begin(model, CHUNKS - 1)
        await ada.stop()
        await answer.rest()
        tokens, dollars = await wait_for_usage(ada)

    assert 2_900 <= tokens < 2_900 + TOOLS
    # 2.50 dollars for a million tokens of questions, 10 for one of answers
    assert dollars == pytest.approx(0.0025 + 0.019, abs=0.001)


async def test_an_answer_that_its_reader_leaves_counts(tmp_path: Path) -> None:
    model = LongWriter()
    async with asking(tmp_path, model) as ada:
        body = run_input(messages=[user(QUESTION)])
        async with ada.open("POST", "/agent/default/ask", body) as answer:
            await begin(model, CHUNKS - 1)
            answer.hang_up()
        tokens, _ = await wait_for_usage(ada)

    assert 2_900 <= tokens < 2_900 + TOOLS


async def test_an_answer_that_is_stopped_before_its_first_word_counts_its_question(
    tmp_path: Path,
) -> None:
    model = LongWriter()
    async with (
        asking(tmp_path, model) as ada,
        ada.running(messages=[user(QUESTION)]) as answer,
    ):
        async with asyncio.timeout(20):
            await model.gate.wait_for_event()
        await ada.stop()
        await answer.rest()
        tokens, _ = await wait_for_usage(ada)

    assert 1_000 <= tokens < 1_000 + TOOLS


async def test_a_stopped_answer_of_a_v1_client_counts(tmp_path: Path) -> None:
    model = LongWriter()
    async with asking(tmp_path, model) as ada:
        async with ada.open("POST", "", chat()) as answer:
            await begin(model, CHUNKS - 1)
            answer.hang_up()
        tokens, _ = await wait_for_usage(ada)

    assert 1_900 <= tokens < 2_100


@in_one_test("error", [None, NetworkError("It broke off.")], ids=["silent", "broken"])
async def test_an_answer_without_counts_of_its_provider_counts_by_estimate(
    tmp_path: Path, error: Exception | None
) -> None:
    model = LongWriter(error=error)
    model.gate.release(CHUNKS + 2)
    async with asking(tmp_path, model) as ada:
        await ada.run(messages=[user(QUESTION)])
        tokens, _ = await wait_for_usage(ada)

    assert 3_000 <= tokens < 3_000 + TOOLS


async def test_an_answer_with_counts_of_its_provider_counts_exactly_these(tmp_path: Path) -> None:
    model = LongWriter(
        usage=Usage(model="gpt-4o", provider="openai", input_tokens=700, output_tokens=400)
    )
    model.gate.release(CHUNKS + 2)
    async with asking(tmp_path, model) as ada:
        await ada.run(messages=[user(QUESTION)])
        tokens, dollars = await wait_for_usage(ada)

    assert (tokens, dollars) == (1_100, pytest.approx(0.00575))


async def test_a_request_that_is_refused_counts_nothing(tmp_path: Path) -> None:
    model = LongWriter(error=RateLimited("Too many requests."), chunks=0)
    async with asking(tmp_path, model) as ada:
        refused = await ada.run(messages=[user(QUESTION)], run="r1")
        model.error, model.chunks = None, 1
        model.gate.release(3)
        await ada.run(messages=[user("Hi")], run="r2")
        tokens, _ = await wait_for_usage(ada)

    assert refused.types()[-1] == "RUN_ERROR"
    assert 100 <= tokens < 100 + TOOLS


async def test_a_task_of_a_plan_that_is_stopped_half_way_counts(tmp_path: Path) -> None:
    model = LongWriter()
    planner = build_planner({"writer": DirectAgent(model)}, write_plan("Fares"))
    async with asking(tmp_path, model, agents={"planner": planner}) as ada:
        async with ada.running(agent="planner", messages=[user(QUESTION)]) as answer:
            await begin(model, CHUNKS - 1)
            await ada.ask("POST", "/agent/planner/stop/t")
            await answer.rest()
        await wait_for_usage(ada, CHUNKS * 100)
        (plan,) = (await ada.ask("GET", "/plans")).json()["plans"]
        details = (await ada.ask("GET", f"/plans/{plan['id']}")).json()

    assert details["status"] == "stopped"
    assert details["tokens"] >= CHUNKS * 100


async def test_a_sub_agent_at_work_counts_when_the_answer_is_stopped(tmp_path: Path) -> None:
    usage = Usage(model="gpt-4o", provider="openai", input_tokens=300, output_tokens=200)
    order = [*call("run_sub_agent", {"agent": "clerk", "prompt": "Count."}), usage]
    gate = Gate()
    model = ScriptedAdapter(order, say([CHUNK] * CHUNKS), gate=gate)
    folder = write_files(
        tmp_path, boss="---\ntools: run_sub_agent\n---\nYou lead.", clerk="You count."
    )
    boss = AssistantAgent("boss", folder, model)
    async with (
        asking(tmp_path, model, agents={"boss": boss}) as ada,
        ada.running(agent="boss", messages=[user()]) as answer,
    ):
        gate.release(len(order) + CHUNKS)
        async with asyncio.timeout(20):
            await gate.wait_for_event()
        await ada.ask("POST", "/agent/boss/stop/t")
        await answer.rest()
        tokens, _ = await wait_for_usage(ada, 501)

    assert 2_400 <= tokens < 2_400 + TOOLS


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
            [sys.executable, "-m", "tests.extensions.access.credentials", redis.url]
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
