"""Two users: whatever one tries, the other's thread is one that does not exist."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from copilot_runtime import CopilotRuntime, Events, RunInput, Settings
from copilot_runtime.adapters.scripted import Gate, say
from copilot_runtime.agents.agui import AguiAgent
from tests.in_one_test import in_one_test
from tests.wire.client import chat
from tests.wire_agui.http import Browser, run_input
from tests.wire_agui.server import PATH, Parrot, browsing, serving
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


SENT = {
    "authorization": "Bearer user",
    "x-tenant": "acme",
    "X-Upper": "Case",
    "accept-language": "de",
    "cookie": "session=secret",
    "proxy-authorization": "Basic secret",
    "x-forwarded-for": "10.0.0.1",
    "x-forwarded-host": "inside",
    "x-real-ip": "10.0.0.1",
    "x-request-id": "1",
    "x-amz-date": "1",
    "x-vercel-id": "1",
    "x-azure-ref": "1",
    "x-fastly-id": "1",
    "x-middleware-next": "1",
    "x-b3-traceid": "1",
    "traceparent": "00-1",
}


class Listens:
    """An agent that remembers which headers it was told of."""

    headers: Mapping[str, str] = {}

    async def run(self, run: RunInput) -> Events:
        self.headers = run.headers
        for event in say("Heard", id=run.run_id):
            yield event


async def heard(settings: Settings | None = None, **more: str) -> Mapping[str, str]:
    agent = Listens()
    async with browsing(agents={"agent": agent}, settings=settings) as browser:
        await browser.ask("POST", "/agent/agent/run", run_input(), {**SENT, **more})
    return agent.headers


async def test_authorization_and_x_headers_are_told_but_not_what_proxies_write() -> None:
    assert await heard() == {
        "authorization": "Bearer user",
        "x-tenant": "acme",
        "x-upper": "Case",
    }


async def test_an_operator_may_allow_others_and_deny_some() -> None:
    settings = Settings(
        threads="memory",
        forward_headers=("accept-language", "x-*", "traceparent"),
        deny_headers=("x-upper", "x-forwarded-*"),
    )
    told = await heard(settings)

    assert told["accept-language"] == "de"
    assert told["traceparent"] == "00-1"
    assert told["x-request-id"] == "1"
    assert not told.keys() & {"authorization", "x-upper", "x-forwarded-for", "cookie"}


@in_one_test("names", [("*",), ("c*", "h*", "t*")])
async def test_cookies_are_never_told_whatever_is_allowed(names: tuple[str, ...]) -> None:
    told = await heard(Settings(threads="memory", forward_headers=names, deny_headers=()))

    assert not told.keys() & {"cookie", "host", "content-length", "connection"}


class Remote:
    """An agent's end of the wire: answers with nothing, and remembers what it was sent."""

    def __init__(self) -> None:
        self.headers: dict[str, list[str]] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        for name, value in scope["headers"]:
            self.headers.setdefault(name.decode(), []).append(value.decode())
        ids = {"threadId": "t", "runId": "r"}
        frames = [{"type": "RUN_STARTED", **ids}, {"type": "RUN_FINISHED", **ids}]
        body = b"".join(b"data: %b\n\n" % json.dumps(frame).encode() for frame in frames)
        kind = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        await send({"type": "http.response.body", "body": body})


@in_one_test("way", ["route", "envelope"])
async def test_what_is_set_for_an_agent_wins_over_what_a_client_says(way: str) -> None:
    remote = Remote()
    async with serving(remote, lifespan="off") as port:
        agent = AguiAgent(
            f"http://127.0.0.1:{port}/",
            headers={"Authorization": "Bearer operator", "x-mine": "operator"},
        )
        async with browsing(agents={"agent": agent}) as browser:
            sent = {**SENT, "x-mine": "client", "x-other": "client"}
            asked = Browser(browser.where, headers=sent)
            if way == "route":
                answer = await asked.run(agent="agent")
            else:
                answer = await asked.envelope("agent/run", run_input(), agentId="agent")

    assert answer.types() == ["RUN_STARTED", "RUN_FINISHED"]
    assert remote.headers["authorization"] == ["Bearer operator"]
    assert remote.headers["x-mine"] == ["operator"]
    assert remote.headers["x-other"] == ["client"]
    assert remote.headers["x-tenant"] == ["acme"]
    assert not remote.headers.keys() & {
        "cookie",
        "x-forwarded-for",
        "x-real-ip",
        "x-request-id",
        "proxy-authorization",
    }
