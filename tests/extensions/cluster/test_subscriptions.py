"""Subscriptions of CopilotKit v1 that go on at another server, and runs that are stopped there."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from copilot_runtime.adapters.scripted import Gate
from tests.extensions.cluster.sharing import sharing
from tests.wire.documents import data
from tests.wire.test_subscriptions import Socket, opened, words
from tests.wire_agui.http import Browser
from tests.wire_agui.server import Parrot
from tests.wire_agui.strangers import by_token

pytestmark = pytest.mark.anyio

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
