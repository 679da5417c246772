"""Changes of threads are told to readers at any server, whichever server made them."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime import RunInput, Settings
from copilot_runtime.adapters.scripted import Gate
from copilot_runtime.runtime.thread_changes import ThreadChanges
from copilot_runtime.runtime.thread_changes.change import Change, RunActivity, ThreadChange
from copilot_runtime.threads.sqlite import SqliteThreads
from copilot_runtime.threads.store import ThreadKey
from tests.extensions.cluster.redis_server import redis_server
from tests.extensions.cluster.sharing import sharing
from tests.processes import running
from tests.wire.client import data
from tests.wire.test_subscriptions import Socket, opened, words
from tests.wire_agui.http import Browser, Event, Exchange
from tests.wire_agui.server import Parrot, browsing
from tests.wire_agui.strangers import by_token

pytestmark = pytest.mark.anyio

CHANGES = "/threads/changes"


async def test_thread_changes_at_another_server_are_announced_here(
    shared: Mapping[str, Any],
) -> None:
    gate = Gate()
    async with (
        sharing(shared, Parrot("one", gate=gate), Parrot()) as (first, second),
        second.open("GET", CHANGES) as reader,
    ):
        listed = await reader.until("threads")
        async with first.running(run="r1", thread="t") as asked:
            created = await until_operation(reader, "created")
            began = await reader.until("run")
            gate.release(9)
            await asked.rest()
        ended = await reader.until("run")
        await first.ask("PATCH", "/threads/t", {"name": "Paris"})
        renamed = await until_operation(reader, "renamed")
        await first.ask("POST", "/threads/t/archive", {})
        archived = await until_operation(reader, "archived")
        await first.ask("DELETE", "/threads/t", {})
        deleted = await until_operation(reader, "deleted")

    assert listed["threads"] == []
    assert (created["threadId"], created["thread"]["running"]) == ("t", True)
    assert [(run["eventType"], run["runId"]) for run in (began, ended)] == [
        ("RUN_STARTED", "r1"),
        ("RUN_FINISHED", "r1"),
    ]
    assert (renamed["thread"]["name"], renamed["thread"]["running"]) == ("Paris", False)
    assert archived["thread"]["archived"] is True
    assert deleted["threadId"] == "t"


async def until_operation(reader: Exchange, operation: str) -> Event:
    while (event := await reader.until("thread"))["operation"] != operation:
        pass
    return event


async def test_a_server_that_starts_later_tells_those_who_look_already(
    shared: Mapping[str, Any],
) -> None:
    settings = Settings(**shared)
    async with (
        browsing(settings=settings) as first,
        first.open("GET", CHANGES) as reader,
        browsing(settings=settings) as second,
    ):
        await reader.until("threads")
        await second.run(thread="t")
        created = await until_operation(reader, "created")

    assert created["threadId"] == "t"


async def test_changes_are_announced_without_a_message_broker(database: str) -> None:
    with redis_server() as redis:
        settings = Settings(threads=database, carrier=redis.url)
        async with AsyncExitStack() as stack:
            with redis.running():
                first = await stack.enter_async_context(browsing(settings=settings))
                second = await stack.enter_async_context(browsing(settings=settings))
                reader = await stack.enter_async_context(second.open("GET", CHANGES))
                await reader.until("threads")
            await first.run(thread="t")
            created = await until_operation(reader, "created")
            await first.ask("DELETE", "/threads/t", {})
            deleted = await until_operation(reader, "deleted")

    assert created["threadId"] == deleted["threadId"] == "t"


async def test_without_a_carrier_the_store_tells_what_has_changed(tmp_path: Path) -> None:
    first, second = (SqliteThreads(tmp_path / "threads.db") for _ in range(2))
    changes = ThreadChanges(second, renewal=0.01, blind_look=0.01)
    seen: list[str] = []
    async with aclosing_all(first, second), changes.follow("ada") as reader:
        await first.begin(a_run("r1", owner="ada"))
        await first.begin(a_run("r2", owner="eve"))
        while len(seen) < 2:
            seen += [describe(change) for change in await reader.read()]
        await first.update(ThreadKey("ada", "t"), name="Paris")
        seen += [describe(change) for change in await reader.read()]

    assert seen == ["created t", "RUN_STARTED r1", "renamed t"]


async def test_a_deletion_with_several_notices_is_announced_once(tmp_path: Path) -> None:
    store, key = SqliteThreads(tmp_path / "threads.db"), ThreadKey("ada", "t")
    changes, seen = ThreadChanges(store), list[str]()

    async def note(*keys: ThreadKey) -> None:
        for one in keys:
            changes.note(one)
        seen.extend(describe(change) for change in await reader.read())

    async with aclosing_all(store), changes.follow("ada") as reader:
        await note(key)  # nobody here knows it: it was too old for the list, say
        await store.begin(replace(a_run("r0", owner="ada"), thread_id="other"))
        await note(key, key._replace(id="other"))
        await store.begin(a_run("r1", owner="ada"))
        await note(key)
        await store.delete(key)
        await note(key)

    assert seen == ["deleted t", "created other", "created t", "deleted t"]


async def test_the_end_of_a_run_whose_server_was_killed_is_announced(tmp_path: Path) -> None:
    file = tmp_path / "threads.db"
    async with (
        browsing(settings=Settings(threads=f"sqlite:{file}")) as browser,
        browser.open("GET", CHANGES) as reader,
    ):
        with running(
            [sys.executable, "-m", "tests.extensions.cluster.silent_run", file]
        ) as program:
            await asyncio.to_thread(program.until, "begun")
            began = await reader.until("run")
            program.kill()
        ended = await reader.until("run")

    assert [run["eventType"] for run in (began, ended)] == ["RUN_STARTED", "RUN_ERROR"]


def a_run(id: str, *, owner: str) -> RunInput:
    return RunInput(thread_id="t", run_id=id, log_id=id, user=owner, messages=())


def describe(change: Change) -> str:
    match change:
        case ThreadChange(key=key, operation=operation):
            return f"{operation} {key.id}"
        case RunActivity(event=event, run_id=run_id):
            return f"{event} {run_id}"


@asynccontextmanager
async def aclosing_all(*stores: SqliteThreads) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        for store in stores:
            await store.aclose()


STOP = "mutation($run: String!) { stopCopilotResponse(runId: $run) }"
WORDS = ("one", "two", "three")
LENGTHS = 8
"""Events that an answer of three words has, and some more."""


def port(browser: Browser) -> int:
    assert isinstance(browser.where, int)
    return browser.where


async def stop(browser: Browser, run: str) -> Any:
    answer = await browser.ask("POST", "", {"query": STOP, "variables": {"run": run}})
    return answer.json()["data"]["stopCopilotResponse"]


async def read_until(socket: Socket, word: str) -> list[Any]:
    updates: list[Any] = []
    while word not in words(updates):
        updates.append(await socket.update())
    return updates


async def resume(browser: Browser, updates: Sequence[Any], **more: str) -> list[Any]:
    """Go on with a subscription from its last cursor."""
    last = updates[-1]
    async with opened(port(browser), **more) as socket:
        await socket.subscribe(runId=last["runId"], after=last["cursor"])
        return await socket.rest()


async def test_a_subscription_goes_on_at_another_server_from_its_cursor(
    shared: Mapping[str, Any],
) -> None:
    gate = Gate()
    async with sharing(shared, Parrot(*WORDS, gate=gate), Parrot()) as (first, second):
        async with opened(port(first)) as socket:
            await socket.subscribe(data=data())
            gate.release(3)
            before = await read_until(socket, "two")
        gate.release(LENGTHS)
        after = await resume(second, before)
        late = await resume(second, before)

    assert words(before + after) == [*WORDS]
    assert words(after) == words(late)
    assert after[-1]["status"] == {"__typename": "SuccessResponseStatus"}


async def test_a_run_without_a_thread_goes_on_at_another_server_and_is_stopped_at_any(
    shared: Mapping[str, Any],
) -> None:
    gate = Gate()
    async with (
        sharing(shared, Parrot(*WORDS, gate=gate), Parrot(), Parrot()) as (first, second, third),
        opened(port(first)) as socket,
        opened(port(second)) as again,
    ):
        await socket.subscribe(data=data(threadId=None))
        gate.release(2)
        before = await read_until(socket, "one")
        await again.subscribe(runId=before[-1]["runId"])
        await read_until(again, "one")
        stopped = [await stop(third, before[-1]["runId"]) for _ in range(2)]
        ends = [(await one.rest())[-1]["status"]["__typename"] for one in (socket, again)]

    assert stopped == [True, False]
    assert ends == ["FailedResponseStatus"] * 2


@pytest.mark.parametrize("at", [0, 1], ids=["its own server", "another server"])
async def test_a_stop_looks_alike_at_every_server(shared: Mapping[str, Any], at: int) -> None:
    gate = Gate()
    async with (
        sharing(shared, Parrot(*WORDS, gate=gate), Parrot()) as servers,
        opened(port(servers[0])) as socket,
        opened(port(servers[1])) as elsewhere,
    ):
        await socket.subscribe(data=data())
        gate.release(2)
        run = (await read_until(socket, "one"))[-1]["runId"]
        await elsewhere.subscribe(runId=run)
        await read_until(elsewhere, "one")
        stopped = await stop(servers[at], run)
        ends = [(await one.rest())[-1]["status"] for one in (socket, elsewhere)]

    assert stopped is True
    assert ends[0] == ends[1]
    assert ends[0].pop("details")["originalError"]["code"] == "CANCELLED"
    assert ends[0] == {"__typename": "FailedResponseStatus", "reason": "UNKNOWN_ERROR"}


async def test_users_cannot_follow_or_stop_runs_of_others_at_another_server(
    shared: Mapping[str, Any],
) -> None:
    gate, options = Gate(), {"authenticate": by_token}
    ada, eve = {"authorization": "Bearer ada"}, {"authorization": "Bearer eve"}
    models = (Parrot(*WORDS, gate=gate), Parrot())
    async with (
        sharing(shared, *models, options=options) as (first, second),
        opened(port(first), **ada) as socket,
        opened(port(second), **eve) as other,
    ):
        await socket.subscribe(data=data())
        gate.release(2)
        run = (await read_until(socket, "one"))[-1]["runId"]
        await other.subscribe(runId=run)
        refusal = await other.error()
        stopped = await stop(second.signed_in("eve"), run)
        gate.release(LENGTHS)
        own = await socket.rest()

    assert (refusal["extensions"]["code"], stopped) == ("NOT_FOUND", False)
    assert own[-1]["status"] == {"__typename": "SuccessResponseStatus"}
