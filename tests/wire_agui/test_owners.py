"""Two users: whatever one tries, the other's thread is one that does not exist."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.adapters.scripted import Gate
from tests.in_one_test import in_one_test
from tests.wire.documents import chat
from tests.wire_agui.http import Browser, run_input
from tests.wire_agui.server import PATH, Parrot, serving
from tests.wire_agui.strangers import (
    MINE,
    STOP,
    V1,
    WAYS,
    Asking,
    attempt,
    by_token,
    fill,
    graphql,
    shown,
)

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def two_users(
    store: str = "memory", **options: Any
) -> AsyncGenerator[tuple[Browser, Browser, Gate, Parrot], None]:
    """Serve ada and eve. Ada has a thread with two answers, and one on its way."""
    gate, model = Gate(), Parrot()
    runtime = CopilotRuntime(
        model,
        agents={"asking": Asking()},
        authenticate=by_token,
        settings=Settings(threads=store),
        **options,
    )
    async with serving(runtime.app(path=PATH)) as port:
        ada, eve = Browser(port).signed_in("ada"), Browser(port).signed_in("eve")
        await fill(ada)
        yield ada, eve, gate, model


def test_there_are_enough_ways() -> None:
    assert len({way.name for way in WAYS}) == len(WAYS) >= 40


@in_one_test("store", ["memory", "sqlite"])
async def test_whatever_one_user_tries_the_thread_of_the_other_does_not_exist(
    store: str, tmp_path: Path
) -> None:
    place = store if store == "memory" else f"sqlite:{tmp_path}/threads.db"
    async with two_users(place) as (ada, eve, _, model):
        found = await attempt(ada, eve, model, WAYS)

    before, after = found.before, found.after
    assert found.leaks == {}
    assert found.answer[-1]["type"] == "RUN_FINISHED"
    assert after[0]["messages"][: len(before[0]["messages"])] == before[0]["messages"]
    assert after[1]["events"][: len(before[1]["events"])] == before[1]["events"]
    assert after[2] == before[2]
    assert [thread["name"] for thread in after[3]["threads"]] == ["Ada's"]


async def test_an_id_that_is_taken_is_free_for_somebody_else() -> None:
    async with two_users() as (ada, eve, _, model):
        await eve.run(thread=MINE, messages=[{"id": "e1", "role": "user", "content": "Eve"}])
        hers = (await eve.connect(MINE)).body
        his = (await ada.connect(MINE)).body

    assert b"You said Eve" in hers
    assert b"You said Hi" not in hers
    assert b"Eve" not in his
    assert [len(request.messages) for request in model.requests] == [1, 1]


async def test_v1_in_the_thread_of_another_begins_one_of_its_own() -> None:
    async with two_users() as (ada, eve, _, _):
        before = await shown(ada)
        answer = await V1.ask(eve, MINE)
        hers = (await eve.ask("GET", "/threads")).json()["threads"]
        after = await shown(ada)

    assert b"SuccessResponseStatus" in answer.body
    assert [thread["createdById"] for thread in hers] == ["eve"]
    assert after == before


async def test_a_subscription_to_a_run_of_another_is_one_to_a_run_that_never_was() -> None:
    follow = """subscription($run: String!) { generateCopilotResponse(runId: $run, after: "0") {
        runId threadId } }"""
    start = """subscription($data: GenerateCopilotResponseInput!) {
        generateCopilotResponse(data: $data) { runId threadId } }"""
    gate = Gate()
    runtime = CopilotRuntime(
        Parrot(gate=gate), authenticate=by_token, settings=Settings(threads="memory")
    )

    async def told(socket: Any, query: str, **variables: Any) -> Any:
        payload = {"query": query, "variables": variables}
        await socket.send(json.dumps({"type": "subscribe", "id": "1", "payload": payload}))
        return json.loads(await socket.recv())

    @asynccontextmanager
    async def socket_of(user: str, port: int) -> AsyncGenerator[Any, None]:
        async with connect(
            f"ws://127.0.0.1:{port}{PATH}",
            subprotocols=[Subprotocol("graphql-transport-ws")],
            additional_headers={"authorization": f"Bearer {user}"},
            proxy=None,
        ) as socket:
            await socket.send(json.dumps({"type": "connection_init"}))
            assert json.loads(await socket.recv())["type"] == "connection_ack"
            yield socket

    async with serving(runtime.app(path=PATH)) as port, socket_of("ada", port) as mine:
        data = chat()["variables"]["data"]
        begun = await told(mine, start, data=data)
        run = begun["payload"]["data"]["generateCopilotResponse"]["runId"]
        async with socket_of("eve", port) as other:
            taken = await told(other, follow, run=run)
        async with socket_of("eve", port) as other:
            unknown = await told(other, follow, run="-" * len(run))
        eve = Browser(port).signed_in("eve")
        stopped = (await graphql(STOP, run=run)(eve, "")).json()
        gate.release(10)

    assert json.dumps(taken).replace(run, "-" * len(run)) == json.dumps(unknown)
    assert stopped == {"data": {"stopCopilotResponse": False}}


async def test_without_authentication_everybody_shares_all_threads() -> None:
    runtime = CopilotRuntime(Parrot(), settings=Settings(threads="memory"))
    async with serving(runtime.app(path=PATH)) as port:
        await Browser(port).signed_in("ada").run(thread=MINE)
        seen = await Browser(port).signed_in("eve").ask("GET", "/threads")

    assert [thread["id"] for thread in seen.json()["threads"]] == [MINE]
    assert [thread["createdById"] for thread in seen.json()["threads"]] == [""]


@in_one_test(
    ("method", "path", "body"),
    [
        ("GET", "/info", None),
        ("GET", "/threads", None),
        ("POST", "/agent/default/run", run_input()),
        ("POST", "", {"method": "info"}),
        ("POST", "", run_input()),
        ("POST", "", {"query": "{ hello }"}),
        ("GET", "?query={hello}", None),
        ("POST", "/nowhere", None),
        ("POST", "", b"no JSON"),
    ],
)
async def test_who_is_nobody_gets_nothing(method: str, path: str, body: Any) -> None:
    runtime = CopilotRuntime(Parrot(), authenticate=by_token, settings=Settings(threads="memory"))
    async with serving(runtime.app(path=PATH)) as port:
        answer = await Browser(port).ask(method, path, body)

    assert answer.status == 401
    assert answer.json()["message"] == "Who are you?"
