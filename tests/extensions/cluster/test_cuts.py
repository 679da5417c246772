"""A page asks one server about the run of another one, to which the way for messages is cut."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from copilot_runtime import RunInput
from copilot_runtime.adapters.scripted import Gate
from copilot_runtime.api.bus import PeerLost
from copilot_runtime.api.hooks import Hooks
from copilot_runtime.extensions.cluster.peers import Peers
from tests.agents.pages import answered, questions
from tests.extensions.cluster.launch_server import build_launcher
from tests.extensions.cluster.sharing import CutServers
from tests.wire_agui.http import text_of, user
from tests.wire_agui.server import Parrot

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

NEXT: Any = {"run": "r2", "messages": [user("Next", "user-2")]}


@pytest.fixture
def servers(shared: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> CutServers:
    return CutServers(shared, monkeypatch)


@pytest.fixture
def given_up(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Return what is set when a server has waited in vain for another one to stop a run."""
    event, ask = asyncio.Event(), Peers.ask

    async def note(self: Peers, server: str, question: str, **values: Any) -> Any:
        try:
            return await ask(self, server, question, **values)
        except PeerLost:
            if question == "stop":
                event.set()
            raise

    monkeypatch.setattr(Peers, "ask", note)
    return event


@pytest.mark.parametrize("cut", [(0,), (1,), (0, 1)], ids=["owner", "asker", "both"])
async def test_a_question_supersedes_an_answer_as_soon_as_its_server_can_be_reached(
    servers: CutServers, given_up: asyncio.Event, cut: tuple[int, ...]
) -> None:
    gate = Gate()
    models = (Parrot("one", gate=gate), Parrot("two"))
    async with (
        servers.sharing(*models, when_busy="supersede") as machines,
        machines[0].browser.running(run="r1") as asked,
    ):
        gate.release(2)
        await asked.until("TEXT_MESSAGE_CONTENT")
        for number in cut:
            machines[number].way.state = "broken"
        async with machines[1].browser.running(**NEXT) as waiting:
            if not (is_reachable := cut == (1,)):  # some carriers have a way of their own back
                await given_up.wait()
            went_on = not models[0].left.is_set()
            for number in cut:
                machines[number].way.state = "open"
            answered, ended = await waiting.rest(), await asked.rest()

    assert went_on or is_reachable
    assert (text_of(answered), ended[-1]["type"]) == ("two", "RUN_ERROR")


async def test_a_question_is_answered_after_one_whose_server_is_never_reached(
    servers: CutServers, given_up: asyncio.Event
) -> None:
    gate = Gate()
    async with (
        servers.sharing(Parrot("one", gate=gate), Parrot("two"), when_busy="supersede") as machines,
        machines[0].browser.running(run="r1") as asked,
    ):
        await asked.next()
        machines[0].way.state = "broken"
        async with machines[1].browser.running(**NEXT) as waiting:
            await given_up.wait()
            gate.release(9)
            answers = [text_of(await one.rest()) for one in (asked, waiting)]

    assert answers == ["one", "two"]


async def test_an_answer_continues_when_the_question_that_would_end_it_is_withdrawn(
    servers: CutServers, given_up: asyncio.Event
) -> None:
    gate = Gate()
    async with (
        servers.sharing(Parrot("one", gate=gate), Parrot("two"), when_busy="supersede") as machines,
        machines[0].browser.running(run="r1") as asked,
    ):
        (_, way), (second, _) = machines
        await asked.next()
        way.state = "broken"
        async with second.running(**NEXT) as waiting:
            await given_up.wait()
            stopped = await second.stop("t", {"runId": "r2"})
            refused = await waiting.rest()
        way.state = "open"
        await second.stop("t", {"runId": "other"})  # what was sent before has come by now
        gate.release(9)
        answer = await asked.rest()

    assert (stopped["stopped"], [event["type"] for event in refused]) == (True, ["RUN_ERROR"])
    assert (text_of(answer), answer[-1]["type"]) == ("one", "RUN_FINISHED")


async def test_a_stop_that_was_reported_as_failed_stops_nothing_later(servers: CutServers) -> None:
    gate = Gate()
    async with (
        servers.sharing(Parrot("one", gate=gate), Parrot()) as machines,
        machines[0].browser.running() as asked,
    ):
        (_, way), (second, _) = machines
        await asked.next()
        way.state = "broken"
        failed = await second.ask("POST", "/agent/default/stop/t")
        way.state = "open"
        flushed = await second.stop("t", {"runId": "other"})  # what was sent before has come by now
        gate.release(9)
        answer = await asked.rest()

    assert (failed.status, failed.json()["error"]) == (503, "peer_lost")
    assert flushed["stopped"] is False
    assert (text_of(answer), answer[-1]["type"]) == ("one", "RUN_FINISHED")


async def test_no_client_is_promised_that_an_unreachable_server_starts_no_run(
    servers: CutServers,
) -> None:
    begins, never = asyncio.Event(), asyncio.Event()

    async def hang(run: RunInput) -> None:
        begins.set()
        await never.wait()

    first = {"adapter": Parrot(), "hooks": Hooks(before_request=hang)}
    async with servers.sharing(first, Parrot()) as ((browser, way), (second, _)):
        asking = asyncio.create_task(browser.run(run="r1"))
        await begins.wait()
        way.state = "broken"
        failed = await second.ask("POST", "/agent/default/stop/t")
        way.state = "open"
        again = await second.stop("t")
        events = (await asking).events()

    assert (failed.status, failed.json()["error"]) == (503, "peer_lost")
    assert again["stopped"] is True
    assert [event["type"] for event in events] == ["RUN_ERROR"]


async def test_a_thread_is_not_deleted_whose_answer_cannot_be_ended(servers: CutServers) -> None:
    gate = Gate()
    async with (
        servers.sharing(Parrot("one", gate=gate), Parrot(), stop_timeout=1) as machines,
        machines[0].browser.running() as asked,
    ):
        (first, way), (second, _) = machines
        await asked.next()
        way.state = "broken"
        failed = await second.ask("DELETE", "/threads/t", {"agentId": "default"})
        way.state = "open"
        await second.stop("t", {"runId": "other"})  # what was sent before has come by now
        gate.release(2)
        await asked.until("TEXT_MESSAGE_CONTENT")
        deleted = await second.ask("DELETE", "/threads/t", {"agentId": "default"})
        answer = await asked.rest()
        left = (await first.connect()).events()

    assert (failed.status, failed.json()["error"]) == (503, "peer_lost")
    assert (deleted.status, answer[-1]["type"], text_of(left)) == (200, "RUN_ERROR", "")


async def test_a_thread_is_renamed_whose_server_cannot_be_reached(servers: CutServers) -> None:
    gate = Gate()
    async with (
        servers.sharing(Parrot("one", gate=gate), Parrot()) as machines,
        machines[0].browser.running() as asked,
    ):
        (first, way), (second, _) = machines
        await asked.next()
        way.state = "broken"
        renamed = await second.ask("PATCH", "/threads/t", {"name": "Oslo"})
        [thread] = (await first.ask("GET", "/threads")).json()["threads"]
        gate.release(9)
        answer = await asked.rest()

    assert (renamed.status, thread["name"], text_of(answer)) == (200, "Oslo", "one")


async def test_an_approval_counts_while_its_server_is_unreachable(
    servers: CutServers,
) -> None:
    launches: list[str] = []
    agents = [{"agents": {"it": build_launcher(launches.append)}} for _ in range(2)]
    async with servers.sharing(*agents) as ((first, way), (second, _)):
        [question] = questions((await first.run(agent="it")).events())
        way.state = "broken"
        resume = [answered(question, True)]
        answer = (await second.run(agent="it", run="r2", resume=resume)).events()

    assert (text_of(answer), launches) == ("Then: A is gone", ["A"])
