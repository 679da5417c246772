"""What other processes know and do for each other: nothing of it is a way around an owner."""

import asyncio
import stat
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import pytest

from copilot_runtime import Settings
from copilot_runtime.adapters.scripted import Gate
from copilot_runtime.extensions.cluster.message import decode_message, encode_message
from tests.extensions.access.credentials import Entrance, entering, settings_of
from tests.extensions.cluster.sharing import sharing
from tests.wire_agui.http import Browser, text_of, user
from tests.wire_agui.server import Parrot, browsing
from tests.wire_agui.strangers import MINE, V1, WAYS, Asking, attempt, by_token, fill

pytestmark = pytest.mark.anyio

STRANGERS = {"of her tenant": ("eve", "acme"), "of her name": ("ada", "evil")}
FORGED = 'live"]\n["ask", 1, "end", {"thread": ["tenant:acme/ada", "' + MINE + '"]}]\n'


def share(path: Path) -> Settings:
    settings = settings_of(path, threads=f"sqlite:{path}/threads.db", carrier="auto")
    jwt = settings.jwt.model_copy(update={"tenant_claim": "org"})
    return settings.model_copy(update={"jwt": jwt})


@asynccontextmanager
async def two_servers(path: Path, model: Parrot) -> AsyncGenerator[tuple[Entrance, Entrance], None]:
    """Serve the same threads twice, to people with tokens."""
    async with AsyncExitStack() as stack:
        agents = {"asking": Asking()}
        first, second = [
            await stack.enter_async_context(entering(path, one, share(path), agents=agents))
            for one in (model, Parrot())
        ]
        yield first, second


async def sign_in(server: Entrance, user: str, tenant: str) -> Browser:
    return await server.sign_in("jwt", user, tenant)


@pytest.mark.parametrize("stranger", STRANGERS)
async def test_the_thread_of_another_user_does_not_exist_at_another_process_either(
    tmp_path: Path, stranger: str
) -> None:
    model = Parrot()
    async with two_servers(tmp_path, model) as (first, second):
        ada = await sign_in(first, "ada", "acme")
        eve = await sign_in(second, *STRANGERS[stranger])
        await fill(ada)
        found = await attempt(ada, eve, model, [*WAYS, V1])

    before, after = found.before, found.after
    assert found.leaks == {}
    assert found.answer[-1]["type"] == "RUN_FINISHED"
    assert after[2:] == before[2:3] + after[3:]
    assert [thread["name"] for thread in after[3]["threads"]] == ["Ada's"]


async def test_who_may_do_it_here_may_do_it_there(tmp_path: Path) -> None:
    gate = Gate()
    async with two_servers(tmp_path, Parrot(gate=gate)) as (first, second):
        ada = await sign_in(first, "ada", "acme")
        there = await sign_in(second, "ada", "acme")
        async with ada.running(thread="t", run="live") as answering:
            await answering.next()
            stopped = await there.stop("t")
            events = await answering.rest()

    assert stopped["stopped"] is True
    assert events[-1]["type"] == "RUN_ERROR"


async def test_no_client_identifier_becomes_a_message_between_processes(tmp_path: Path) -> None:
    gate = Gate()
    async with two_servers(tmp_path, Parrot(gate=gate)) as (first, second):
        ada = await sign_in(first, "ada", "acme")
        eve, there = [await sign_in(second, who, "acme") for who in ("eve", "ada")]
        async with ada.running(thread=MINE, run="live") as answering:
            await answering.next()
            stops = [await one.stop(quote(MINE), {"runId": FORGED}) for one in (eve, there)]
            thread = quote(f"x{FORGED}", safe="")
            odd = await eve.ask("POST", f"/agent/default/stop/{thread}")
            gate.release(10)
            events = await answering.rest()

    assert [one["stopped"] for one in stops] == [False, False]
    assert odd.status == 400 or odd.json()["stopped"] is False
    assert events[-1]["type"] == "RUN_FINISHED"


def test_a_message_is_one_line_whatever_is_in_it() -> None:
    message = decode_message(encode_message("ask", 1, "stop", {"run_id": FORGED}))

    assert message.fields == [1, "stop", {"run_id": FORGED}]
    assert message.payload == b""


async def test_only_the_user_of_the_server_may_speak_to_it() -> None:
    with TemporaryDirectory() as folder:  # whose path is short enough for sockets
        path = Path(folder)
        async with two_servers(path, Parrot()) as servers:
            for one in servers:  # which has started once it answers
                await one.browser().ask("GET", "/info")
            modes = read_modes(path)

    assert modes == [0o600, 0o600]


def read_modes(path: Path) -> list[int]:
    return [stat.S_IMODE(one.stat().st_mode) for one in path.glob("threads.db-socket-*")]


async def test_it_follows_the_run_that_another_server_began(shared: Mapping[str, Any]) -> None:
    gate, idle = Gate(), Parrot()
    async with (
        sharing(shared, Parrot("one two", gate=gate), idle) as (first, second),
        first.running(run="r1") as asked,
    ):
        gate.release(2)
        await asked.until("TEXT_MESSAGE_CONTENT")
        async with second.running(run="r1") as again:
            await again.until("TEXT_MESSAGE_CONTENT")
            gate.release(9)
            followed = await again.rest()
        own = await asked.rest()
        late = (await second.run(run="r1")).events()

    assert followed == own
    assert (text_of(late), late[-1]["type"]) == ("one two", "RUN_FINISHED")
    assert idle.requests == []


async def test_two_servers_that_get_it_at_the_same_time_run_it_once(
    shared: Mapping[str, Any],
) -> None:
    models = (Parrot("one"), Parrot("one"))
    async with sharing(shared, *models) as browsers:
        answers = await asyncio.gather(*(one.run(run="r1") for one in browsers for _ in range(3)))
        stored = (await browsers[0].connect()).events()

    assert {text_of(answer.events()) for answer in answers} == {"one"}
    assert sum(len(model.requests) for model in models) == 1
    assert [event["type"] for event in stored].count("RUN_STARTED") == 1


async def test_it_finds_its_answer_after_a_restart(tmp_path: Path) -> None:
    settings = Settings(threads=f"sqlite:{tmp_path / 'threads.db'}")
    async with browsing(Parrot("one"), settings=settings) as browser:
        first = (await browser.run(run="r1")).events()
    model = Parrot()
    async with browsing(model, settings=settings) as browser:
        again = (await browser.run(run="r1")).events()

    assert (text_of(again), again[0], again[-1]) == ("one", first[0], first[-1])
    assert model.requests == []


async def test_it_waits_with_the_question_that_waits_for_its_turn(
    shared: Mapping[str, Any],
) -> None:
    gate, model = Gate(), Parrot("two")
    models = (Parrot("one", gate=gate), model)
    question = {"run": "r2", "messages": [user("Next", "user-2")]}
    async with sharing(shared, *models, when_busy="queue") as (first, second):
        async with first.running(run="r1") as asked:
            await asked.next()
            waiting = [asyncio.create_task(second.run(**question)) for _ in range(2)]
            gate.release(9)
            await asked.rest()
        answers = [text_of((await task).events()) for task in waiting]

    assert (answers, len(model.requests)) == (["two", "two"], 1)


async def test_another_user_with_the_same_ids_is_answered_by_a_run_of_their_own(
    shared: Mapping[str, Any],
) -> None:
    models = (Parrot(), Parrot())
    options = {"authenticate": by_token}
    async with sharing(shared, *models, options=options) as (first, second):
        mine = await first.signed_in("ada").run(run="r1", messages=[user("a secret")])
        theirs = await second.signed_in("eve").run(run="r1", messages=[user("a secret")])

    assert "a secret" in text_of(mine.events())
    assert theirs.events()[-1]["type"] == "RUN_FINISHED"
    assert [len(model.requests) for model in models] == [1, 1]


async def test_another_question_with_the_id_of_a_run_is_another_run(
    shared: Mapping[str, Any],
) -> None:
    async with sharing(shared, Parrot(), Parrot()) as (first, second):
        one = await first.run(run="r1", messages=[user("One", "user-1")])
        other = await second.run(run="r1", messages=[user("Other", "user-2")])

    assert text_of(one.events()) == "You said One"
    assert text_of(other.events()) == "You said Other"


async def test_a_question_that_was_stopped_while_waiting_is_not_restarted_by_a_retry(
    shared: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.transports.agui.endpoint._SOON", 0.01)
    models = (Parrot("one", gate=Gate()), Parrot("two"))
    question = {"run": "r2", "messages": [user("Next", "user-2")]}
    async with (
        sharing(shared, *models, when_busy="queue") as (first, second),
        first.running(run="r1") as asked,
    ):
        await asked.next()
        async with second.running(**question) as waiting, second.running(**question) as again:
            for stream in (waiting, again):
                await stream.to_comment()
            await first.stop(body={"runId": "r2"})
            ends = [(await stream.rest())[-1] for stream in (waiting, again)]
        ends.append((await second.run(**question)).events()[-1])

    assert [(end["type"], end["code"]) for end in ends] == [("RUN_ERROR", "abort")] * 3
    assert models[1].requests == []


async def test_a_question_of_a_deleted_conversation_is_not_retried(
    shared: Mapping[str, Any],
) -> None:
    models = (Parrot(), Parrot())
    async with sharing(shared, *models) as (first, second):
        await first.run(run="r1", messages=[user("One", "user-1")])
        await second.ask("DELETE", "/threads/t")
        again = (await first.run(run="r1", messages=[user("One", "user-1")])).events()
        page = await second.ask("GET", "/threads?agentId=default")
        other = (await second.run(run="r2", messages=[user("Other", "user-2")])).events()
        late = (await second.run(run="r1", messages=[user("One", "user-1")])).events()

    assert [(event["type"], event["code"]) for event in (*again, *late)] == [
        ("RUN_ERROR", "NOT_FOUND")
    ] * 2
    assert "was deleted" in again[0]["message"]
    assert page.json()["threads"] == []
    assert text_of(other) == "You said Other"
    assert [len(model.requests) for model in models] == [1, 1]
