"""Limits of users, tenants and keys: counted in memory and in Redis, shown as sentences."""

import asyncio
import tracemalloc
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic, time
from typing import Any
from uuid import uuid4

import pytest

from copilot_runtime import ChatRequest, Events, Settings
from copilot_runtime.adapters.scripted import Gate, say
from copilot_runtime.api.budget import Cost
from copilot_runtime.api.events import Usage
from copilot_runtime.api.identity import Identity
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.access.limits.counters import (
    MOST_COUNTED,
    Counters,
    CountersFailed,
    MemoryCounters,
    Place,
)
from copilot_runtime.extensions.access.limits.limiter import Limiter
from copilot_runtime.extensions.access.service_tokens import ServiceTokenSigner
from copilot_runtime.extensions.access.settings import LimitSettings
from copilot_runtime.security.quota import QuotaExceeded
from tests.extensions.access.credentials import SECRET, Entrance, entering, issue_key, settings_of
from tests.extensions.cluster.redis_server import RedisServer, redis_server
from tests.in_one_test import in_one_test
from tests.wire.client import WHEN, chat, user
from tests.wire_agui.http import Browser
from tests.wire_agui.server import Parrot

pytestmark = pytest.mark.anyio

ADA = Identity(user="ada", tenant="acme", key="k1")
EVE = Identity(user="eve", tenant="acme", key="k2")


class Clock:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def limiter_of(clock: Clock, **settings: Any) -> Limiter:
    return Limiter(LimitSettings.model_validate(settings), MemoryCounters(clock))


async def count(limiter: Limiter, identity: Identity, times: int) -> None:
    for _ in range(times):
        await limiter.check_request(identity)


async def test_one_request_too_many_says_when_the_next_is_possible() -> None:
    clock = Clock()
    limiter = limiter_of(clock, requests_per_user="3/minute")
    await count(limiter, ADA, 3)
    clock.now = 48.5
    with pytest.raises(QuotaExceeded) as refused:
        await limiter.check_request(ADA)
    await count(limiter, EVE, 3)
    clock.now = 60
    await count(limiter, ADA, 3)

    assert refused.value.message == (
        "You have sent more than 3 requests in 1 minute. Please try again in 12 seconds."
    )
    assert refused.value.retry_after == 12


async def test_somebody_who_goes_on_after_a_refusal_waits_and_fills_no_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limiter = limiter_of(Clock(), requests_per_user="1/minute")
    await count(limiter, ADA, 1)
    begin = monotonic()
    with caplog.at_level("INFO"):
        await asyncio.gather(*(count(limiter, ADA, 1) for _ in range(24)), return_exceptions=True)

    assert monotonic() - begin >= 0.05
    assert [record.message for record in caplog.records] == [
        "A request was one too many: You have sent more than 1 request in 1 minute. Please try "
        "again in 1 minute. The setting limits.requests_per_user is 1/minute."
    ]


async def test_limits_of_a_tenant_and_of_a_key_count_for_all_who_share_them() -> None:
    tenant = limiter_of(Clock(), requests_per_tenant="3/hour")
    await count(tenant, ADA, 2)
    await count(tenant, EVE, 1)
    with pytest.raises(QuotaExceeded, match=r"^Your organization has sent more than 3 requests"):
        await tenant.check_request(EVE)
    await count(tenant, Identity(user="ada"), 5)

    key = limiter_of(Clock(), requests_per_key="1/hour")
    await count(key, ADA, 1)
    with pytest.raises(
        QuotaExceeded, match=r"^This API key has sent more than 1 request in 1 hour"
    ):
        await key.check_request(ADA)


async def test_of_several_limits_each_counts() -> None:
    clock = Clock()
    limiter = limiter_of(clock, requests_per_user="2/second, 3/day")
    await count(limiter, ADA, 2)
    with pytest.raises(QuotaExceeded, match="in 1 second"):
        await limiter.check_request(ADA)
    clock.now = 2
    await count(limiter, ADA, 1)
    with pytest.raises(QuotaExceeded, match="in 1 day"):
        await limiter.check_request(ADA)


async def test_whoever_has_not_signed_in_is_counted_by_their_address() -> None:
    limiter = limiter_of(Clock(), requests_per_user="1/minute")
    await count(limiter, Identity(address="10.0.0.1"), 1)
    await count(limiter, Identity(address="10.0.0.2"), 1)
    with pytest.raises(QuotaExceeded):
        await limiter.check_request(Identity(address="10.0.0.1"))


async def test_what_a_run_has_used_counts_for_the_next() -> None:
    clock = Clock()
    settings = LimitSettings.model_validate(
        {"tokens_per_user": "100/day", "dollars_per_tenant": "0.01/day"}
    )
    limiter = Limiter(settings, MemoryCounters(clock))
    await limiter.admit_run(ADA, ADA.owner, "r1")
    await limiter.open_budget(ADA, ADA.owner).settle(Cost(60, 0.006))
    await limiter.admit_run(ADA, ADA.owner, "r2")
    await limiter.open_budget(ADA, ADA.owner).settle(Cost(61, 0.006))

    with pytest.raises(QuotaExceeded, match=r"^You have used up 100 tokens in 1 day"):
        await limiter.admit_run(ADA, ADA.owner, "r3")
    with pytest.raises(QuotaExceeded, match=r"^Your organization has used up 0.01 US dollars"):
        await limiter.admit_run(EVE, EVE.owner, "r4")
    clock.now = 86_400
    await limiter.admit_run(ADA, ADA.owner, "r5")


async def test_places_are_given_back() -> None:
    limiter = limiter_of(Clock(), runs_at_once_per_user=1, runs_at_once_per_tenant=2)
    release = await limiter.admit_run(ADA, ADA.owner, "r1")
    await limiter.admit_run(EVE, EVE.owner, "r2")
    with pytest.raises(QuotaExceeded, match=r"^You have 1 answer under way"):
        await limiter.admit_run(ADA, ADA.owner, "r3")
    with pytest.raises(QuotaExceeded, match=r"^Your organization has 2 answers under way"):
        await limiter.admit_run(Identity(user="bob", tenant="acme"), "bob", "r4")
    release()
    await limiter.aclose()

    await limiter.admit_run(Identity(user="bob", tenant="acme"), "bob", "r5")


@in_one_test("text", ["", "5", "5/fortnight", "-5/day", "0/day", "1e3/day", "5/0 days"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    if not text:
        assert LimitSettings.model_validate({"requests_per_user": text}).requests_per_user == ()
        return
    with pytest.raises(ConfigurationFailed, match="is no rate"):
        Settings.model_validate({"limits": {"requests_per_user": text}})


@pytest.fixture(params=["memory", "redis"])
async def counters(
    request: pytest.FixtureRequest, anyio_backend: str
) -> AsyncGenerator[Counters, None]:
    if request.param == "memory":
        yield MemoryCounters()
        return
    pytest.importorskip("limits")
    pytest.importorskip("redis")
    from copilot_runtime.extensions.access.limits.redis import RedisCounters

    with redis_server() as server, server.running():
        counters = RedisCounters(server.url)
        yield counters
        await counters.aclose()


async def test_every_counter_counts(counters: Counters) -> None:
    name = uuid4().hex
    first = await counters.add(name, 2, 100)
    second = await counters.add(name, 3, 100)

    assert (first.amount, second.amount, (await counters.read(name)).amount) == (2, 5, 5)
    assert 95 < second.seconds_left <= 100
    assert (await counters.read("nothing")).amount == 0


async def test_every_counter_has_places(counters: Counters) -> None:
    assert await counters.enter("p", "a", 2, 100)
    assert await counters.enter("p", "b", 2, 100)
    assert not await counters.enter("p", "c", 2, 100)
    assert await counters.enter("p", "a", 2, 100), "who has one, has one"
    await counters.leave([Place("p", "a")])
    await counters.leave([Place("p", "a")])
    assert [await counters.count_places(name) for name in ("p", "q")] == [1, 0]
    assert await counters.enter("p", "c", 2, 0.001)
    await asyncio.to_thread(lambda: __import__("time").sleep(0.01))
    assert await counters.enter("p", "d", 2, 100), "the place of a process that died is free again"


async def test_a_token_is_good_once_on_all_servers_that_share_redis(tmp_path: Path) -> None:
    pytest.importorskip("limits")
    pytest.importorskip("redis")
    with redis_server() as redis, redis.running():
        settings = remembering(tmp_path, redis)
        async with (
            entering(tmp_path, settings=settings) as one,
            entering(tmp_path, settings=settings) as other,
        ):
            token = await use_token(one)
            answer = await other.bearer(token).ask("GET", "/info")

    assert (answer.status, answer.json()["message"]) == (401, "Token was used before")


@in_one_test("loss", ["restart", "restart with a file", "flush"])
async def test_a_token_of_before_redis_forgot_which_ones_were_used_is_refused(
    tmp_path: Path, loss: str
) -> None:
    pytest.importorskip("limits")
    from redis.asyncio import Redis

    with redis_server() as redis, ExitStack() as stack:
        process = stack.enter_context(ExitStack())
        process.enter_context(redis.running())
        async with entering(tmp_path, settings=remembering(tmp_path, redis)) as server:
            async with Redis.from_url(redis.url) as client:
                if loss == "restart with a file":
                    await use_token(server)
                    await client.save()
                token = await use_token(server, ahead=0.5)
                if loss == "flush":
                    await client.flushall()
            if loss != "flush":
                process.close()
                stack.enter_context(redis.running())
            answers = [await server.bearer(token).ask("GET", "/info") for _ in range(2)]
            await use_token(server)

    assert [answer.status for answer in answers] == [401, 401]
    assert answers[0].json()["message"] == (
        "Token may have been used before: used tokens were forgotten. Sign a new one"
    )


def remembering(path: Path, redis: RedisServer) -> Settings:
    """Return settings with which Redis remembers the tokens that were used."""
    tokens = {"secrets": [SECRET]}
    return settings_of(path, limits={"store": redis.url}, service_tokens=tokens)


async def use_token(server: Entrance, ahead: float = 0.0) -> str:
    """Sign a token until one is good, as a client does, and return it.

    One of the first milliseconds after Redis forgot is not. `ahead` is by how many seconds the
    clock of who signs it is.
    """
    signer = ServiceTokenSigner("agent", [SECRET], clock=lambda: time() + ahead)
    async with asyncio.timeout(20):
        while True:
            token = signer.sign("GET info")
            if (await server.bearer(token).ask("GET", "/info")).status == 200:
                return token


async def test_more_requests_at_once_than_redis_has_connections_are_all_counted(
    tmp_path: Path,
) -> None:
    pytest.importorskip("limits")
    pytest.importorskip("redis")
    with redis_server() as redis, redis.running():
        settings = limited(tmp_path, store=redis.url, requests_per_user="50/hour")
        async with entering(tmp_path, settings=settings) as server:
            ada = server.bearer(await issue_key(server.keys, "ada"))
            found = await asyncio.gather(*(ada.ask("GET", "/info") for _ in range(300)))

    assert Counter(answer.status for answer in found) == {200: 50, 429: 250}


async def test_redis_that_restarted_while_nobody_asked_is_not_taken_for_one_that_is_away(
    tmp_path: Path,
) -> None:
    pytest.importorskip("limits")
    pytest.importorskip("redis")
    signer = ServiceTokenSigner("agent", [SECRET])
    with redis_server(over_tcp=True) as redis:  # over Unix, redis-py notices it in any case
        async with entering(tmp_path, settings=remembering(tmp_path, redis)) as server:
            for _ in range(2):
                with redis.running():
                    browsers = [server.bearer(signer.sign("GET info")) for _ in range(20)]
                    found = await asyncio.gather(*(one.ask("GET", "/info") for one in browsers))
                    assert {answer.status for answer in found} <= {200, 401}, "and no 503"
                    await use_token(server)


async def test_a_token_is_good_though_redis_closed_the_connection_before_it_answered(
    tmp_path: Path,
) -> None:
    pytest.importorskip("limits")
    pytest.importorskip("redis")
    from copilot_runtime.extensions.access.limits.redis import RedisCounters

    with redis_server() as redis, redis.running():
        async with hanging_up(redis.url, tmp_path / "redis.sock", after=b"nonce:n") as url:
            counters = RedisCounters(url)
            found = [(await counters.add_nonce("n", holder, 60))[0] for holder in ("a", "b")]
            problems = counters.find_failing_checks()
            await counters.aclose()

    assert (found, problems) == ([True, False], ())


@asynccontextmanager
async def hanging_up(url: str, path: Path, *, after: bytes) -> AsyncGenerator[str, None]:
    """Pass bytes on to a Redis; hang up once when it did what was asked, and keep its answer."""
    once = [after]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(url.removeprefix("unix://"))
        request = b""

        async def ask() -> None:
            nonlocal request
            while request := await reader.read(65536):
                far_writer.write(request)
            far_writer.close()

        asking = asyncio.create_task(ask())
        while answer := await far_reader.read(65536):
            if once and once[0] in request and not answer.startswith(b"-NOSCRIPT"):
                once.clear()
                break
            writer.write(answer)
        asking.cancel()
        far_writer.close()
        writer.close()

    async with await asyncio.start_unix_server(serve, path):
        yield f"unix://{path}"
    assert not once, "nobody asked"


async def test_many_at_once_are_counted_exactly(counters: Counters) -> None:
    found = await asyncio.gather(*(counters.add("x", 1, 100) for _ in range(50)))
    places = await asyncio.gather(*(counters.enter("y", str(n), 5, 100) for n in range(50)))

    assert sorted(one.amount for one in found) == [*range(1, 51)]
    assert sum(places) == 5


@pytest.mark.stalls(reason="The test counts a hundred thousand times without a pause.")
async def test_windows_in_memory_are_bounded() -> None:
    counters = MemoryCounters()
    for number in range(MOST_COUNTED + 10):
        await counters.add(str(number), 1, 3600)

    assert len(counters.__dict__["_windows"]) <= MOST_COUNTED


async def test_without_redis_everybody_may_go_on(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Counters):
        async def add(self, name: str, amount: int = 0, seconds: int = 0) -> Any:
            raise CountersFailed("away")

        read = enter = renew = leave = count_places = add  # pyright: ignore[reportAssignmentType]

    section = LimitSettings.model_validate(
        {"requests_per_user": "1/day", "tokens_per_user": "1/day", "runs_at_once_per_user": 1}
    )
    limiter = Limiter(section, Broken())
    await count(limiter, ADA, 5)
    statuses = await limiter.list_statuses(ADA, ADA.owner)

    assert [status.used for status in statuses] == [0, 0, 0]
    assert len([record for record in caplog.records if "are not enforced" in record.message]) == 1


class Counting(Parrot):
    """A model that says what it has used."""

    async def stream(self, request: ChatRequest) -> Events:
        for event in say("Hello", id=f"a-{len(self.requests)}"):
            if self.gate is not None:
                await self.gate.wait()
            yield event
        self.requests.append(request)
        yield Usage(provider="openai", model="gpt-4o", input_tokens=700, output_tokens=400)


def limited(path: Path, **limits: Any) -> Settings:
    return settings_of(path, limits=limits)


async def run_error(browser: Browser, **fields: Any) -> tuple[Mapping[str, str], Any]:
    answer = await browser.run(**fields)
    return answer.headers, answer.events()[-1]


async def test_a_limit_is_a_sentence_for_every_client_and_nobody_else_notices(
    tmp_path: Path,
) -> None:
    settings = limited(tmp_path, requests_per_user="2/hour")
    async with entering(tmp_path, settings=settings) as server:
        ada = server.bearer(await issue_key(server.keys, "ada"))
        eve = server.bearer(await issue_key(server.keys, "eve"))
        await ada.ask("GET", "/info")
        await ada.ask("GET", "/info")
        page = {"origin": "http://localhost:3000"}
        plain = await ada.ask("GET", "/info", headers=page)
        headers, error = await run_error(ada)
        single = await ada.envelope("agent/run", {}, agentId="default")
        v1 = await ada.ask("POST", "", chat())
        other = await eve.run()

    sentence = "You have sent more than 2 requests in 1 hour. Please try again in 1 hour."
    sentence = sentence[:60]
    assert plain.status == 429
    assert plain.json()["message"].startswith(sentence)
    assert plain.headers["access-control-expose-headers"] == "Retry-After"
    assert 3500 < int(plain.headers["retry-after"]) <= 3600
    assert (error["type"], error["code"]) == ("RUN_ERROR", "LIMIT_EXCEEDED")
    assert error["message"].startswith(sentence)
    assert "retry-after" in headers
    assert single.events()[-1]["message"].startswith(sentence)
    assert v1.json()["errors"][0]["message"].startswith(sentence)
    assert v1.json()["errors"][0]["extensions"]["code"] == "LIMIT_EXCEEDED"
    assert (v1.status, "retry-after" in v1.headers) == (200, True)
    assert other.types()[-1] == "RUN_FINISHED"


async def test_tokens_of_a_run_are_counted_when_it_ends(tmp_path: Path) -> None:
    settings = limited(tmp_path, tokens_per_user="1000/day")
    async with entering(tmp_path, Counting(), settings) as server:
        ada = server.bearer(await issue_key(server.keys, "ada"))
        first = await ada.run(run="r1")
        headers, error = await run_error(ada, run="r2")
        v1 = await ada.ask("POST", "", chat())

    assert first.types()[-1] == "RUN_FINISHED"
    assert error["message"].startswith("You have used up 1,000 tokens in 1 day.")
    assert 86_000 < int(headers["retry-after"]) <= 86_400
    assert v1.json()["errors"][0]["message"].startswith("You have used up 1,000 tokens")
    assert "retry-after" in v1.headers


async def test_tokens_of_v1_clients_are_counted_too(tmp_path: Path) -> None:
    settings = limited(tmp_path, tokens_per_user="1000/day")
    async with entering(tmp_path, Counting(), settings) as server:
        ada = server.bearer(await issue_key(server.keys, "ada"))
        await ada.ask("POST", "", chat())
        _, error = await run_error(ada)

    assert error["message"].startswith("You have used up 1,000 tokens in 1 day.")


class SlowCounters(MemoryCounters):
    """Counters of which one is far away."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def enter(self, name: str, holder: str, most: int, seconds: float) -> bool:
        found = await super().enter(name, holder, most, seconds)
        if "tenant" in name and not self.asked.is_set():
            self.asked.set()
            await asyncio.Event().wait()
        return found


async def test_whoever_leaves_before_a_run_begins_keeps_no_place() -> None:
    settings = {"runs_at_once_per_user": 1, "runs_at_once_per_tenant": 1}
    counters = SlowCounters()
    limiter = Limiter(LimitSettings.model_validate(settings), counters)
    leaving = asyncio.create_task(limiter.admit_run(ADA, ADA.owner, "r1"))
    await counters.asked.wait()
    leaving.cancel()
    await asyncio.wait((leaving,))
    await limiter.aclose()

    assert await limiter.admit_run(ADA, ADA.owner, "r2")


async def test_runs_at_once_are_limited_until_one_ends(tmp_path: Path) -> None:
    gate = Gate()
    settings = limited(tmp_path, runs_at_once_per_user=1)
    async with entering(tmp_path, Parrot(gate=gate), settings) as server:
        ada = server.bearer(await issue_key(server.keys, "ada"))
        async with ada.running(thread="t1", run="r1") as answer:
            await answer.next()
            headers, error = await run_error(ada, thread="t2", run="r2")
            [limit] = (await ada.ask("GET", "/access/whoami")).json()["limits"]
            gate.release(10)
            await answer.rest()
        again = await ada.run(thread="t2", run="r3")

    assert (limit["kind"], limit["level"]) == ("runs_at_once", "user")
    assert (limit["used"], limit["limit"], limit["seconds"]) == (1, 1, 0)
    assert error["message"].startswith("You have 1 answer under way")
    assert headers["retry-after"] == "5"
    assert again.types()[-1] == "RUN_FINISHED"


CALL: Mapping[str, Any] = {"name": "setColor", "arguments": "{}"}
ACTED: Sequence[Mapping[str, Any]] = [
    {"id": "u1", "role": "user", "content": "Red!"},
    {
        "id": "a1",
        "role": "assistant",
        "toolCalls": [{"id": "c", "type": "function", "function": CALL}],
    },
    {"id": "t1", "role": "tool", "toolCallId": "c", "content": "done"},
]


async def test_questions_are_limited_and_neither_pages_nor_continuations_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    settings = limited(tmp_path, runs_per_user=["2/hour", "200/day"])
    result = {"actionExecutionId": "c", "actionName": "setColor", "result": "done"}
    acted = {"id": "r", "createdAt": WHEN, "resultMessage": result}
    async with entering(tmp_path, settings=settings) as server:
        ada = server.bearer(await issue_key(server.keys, "ada"))
        await ada.ask("GET", "/info")
        first = await ada.run(thread="t1", run="r1")
        second = await ada.ask("POST", "", chat(threadId="t2"))
        continued = await ada.run(thread="t3", run="r3", messages=ACTED)
        continued_v1 = await ada.ask("POST", "", chat(user(), acted, threadId="t4"))
        headers, error = await run_error(ada, thread="t5", run="r5")
        v1 = await ada.ask("POST", "", chat(threadId="t6"))
        me = (await ada.ask("GET", "/access/whoami")).json()

    assert [answer.types()[-1] for answer in (first, continued)] == ["RUN_FINISHED"] * 2
    assert all(b"errors" not in answer.body for answer in (second, continued_v1))
    sentence = "You have asked 2 questions in 1 hour, and no more are possible. Please try again in"
    assert (error["code"], error["message"][: len(sentence)]) == ("LIMIT_EXCEEDED", sentence)
    assert 3500 < int(headers["retry-after"]) <= 3600
    assert v1.json()["errors"][0]["message"].startswith(sentence)
    assert 3500 < int(v1.headers["retry-after"]) <= 3600
    assert caplog.text.count(sentence) == 1, "two were refused in one minute"
    found = [(one["kind"], one["used"], one["limit"], one["seconds"]) for one in me["limits"]]
    assert found == [("runs", 2, 2, 3600), ("runs", 2, 200, 86_400)]


async def test_a_question_that_is_refused_for_another_reason_is_not_counted(
    counters: Counters,
) -> None:
    section = {"runs_at_once_per_user": 1, "runs_per_key": "2/hour", "runs_per_user": "9/hour"}
    limiter = Limiter(LimitSettings.model_validate(section), counters)
    release = await limiter.admit_run(ADA, ADA.owner, "r1")
    with pytest.raises(QuotaExceeded, match="under way"):
        await limiter.admit_run(ADA, ADA.owner, "r2")
    release()
    await limiter.aclose()
    (await limiter.admit_run(ADA, ADA.owner, "r3"))()
    await limiter.aclose()
    with pytest.raises(QuotaExceeded, match="This API key has asked 2 questions in 1 hour"):
        await limiter.admit_run(ADA, ADA.owner, "r4")

    used = [one.used for one in await limiter.list_statuses(ADA, ADA.owner) if one.kind == "runs"]
    assert used == [2, 2]


async def test_who_calls_every_question_a_continuation_is_limited_all_the_same() -> None:
    limiter = limiter_of(Clock(), runs_per_user="1/hour")
    for number in range(20):
        await limiter.admit_run(ADA, ADA.owner, f"r{number}", is_continuation=True)

    with pytest.raises(QuotaExceeded, match="asked 1 question in 1 hour"):
        await limiter.admit_run(ADA, ADA.owner, "r20", is_continuation=True)


def test_two_rates_for_the_same_time_are_counted_once() -> None:
    clock = Clock()
    limiter = limiter_of(clock, requests_per_user="5/minute, 3/60 seconds, 4/minute")

    asyncio.run(count(limiter, ADA, 3))
    with pytest.raises(QuotaExceeded, match="more than 3 requests in 1 minute"):
        asyncio.run(count(limiter, ADA, 1))


def test_large_amounts_are_written_out() -> None:
    limiter = limiter_of(Clock(), tokens_per_user="2000000/day", dollars_per_user="2.5/day")

    asyncio.run(limiter.open_budget(ADA, ADA.owner).settle(Cost(2_000_000)))
    with pytest.raises(QuotaExceeded, match=r"^You have used up 2,000,000 tokens in 1 day"):
        asyncio.run(limiter.admit_run(ADA, ADA.owner, "r"))


async def test_the_addresses_of_one_network_of_ipv6_are_one() -> None:
    limiter = limiter_of(Clock(), requests_per_user="2/minute")
    await count(limiter, Identity(address="2001:db8::1"), 1)
    await count(limiter, Identity(address="2001:db8::2"), 1)
    with pytest.raises(QuotaExceeded):
        await count(limiter, Identity(address="2001:db8::ffff:ffff"), 1)
    await count(limiter, Identity(address="2001:db8:0:1::1"), 2)


async def test_nobody_is_counted_for_the_address_of_somebody_else_by_their_name() -> None:
    limiter = limiter_of(Clock(), requests_per_user="1/minute")
    await count(limiter, Identity(user="address:10.0.0.1"), 1)

    await count(limiter, Identity(address="10.0.0.1"), 1)


@in_one_test("text", ["0.5/day", "1.5/minute"])
def test_a_fraction_of_a_request_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationFailed, match="only whole ones are counted"):
        Settings.model_validate({"limits": {"requests_per_user": text}})


async def test_ten_thousand_users_are_counted_each_and_take_little_memory() -> None:
    counters = MemoryCounters()
    limiter = Limiter(LimitSettings.model_validate({"requests_per_user": "1/minute"}), counters)
    people = [Identity(user=f"user-{number}") for number in range(10_000)]
    tracemalloc.start()
    for one in people:
        await limiter.check_request(one)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    with pytest.raises(QuotaExceeded):
        await limiter.check_request(people[0])

    assert size < 10_000_000


async def test_redis_that_is_away_makes_a_request_wait_once(tmp_path: Path) -> None:
    pytest.importorskip("limits")
    pytest.importorskip("redis")
    from copilot_runtime.extensions.access.limits.redis import RedisCounters

    clock = Clock()
    counters = RedisCounters(f"unix://{tmp_path}/nobody.sock", clock)
    messages: list[str] = []
    for seconds in (0.0, 0.5, 0.6):
        clock.now += seconds
        with pytest.raises(CountersFailed) as failed:
            await counters.add("x", 1, 60)
        messages.append(str(failed.value))
    await counters.aclose()

    pause = "Redis did not answer a moment ago"
    assert [message == pause for message in messages] == [False, True, False]
