"""Which request headers an agent hears of: what is allowed, less what is denied, cookies never."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from copilot_runtime import Events, RunInput, Settings
from copilot_runtime.adapters.scripted import say
from copilot_runtime.agents.agui import AguiAgent
from tests.in_one_test import in_one_test
from tests.wire_agui.http import Browser, run_input
from tests.wire_agui.server import browsing, serving

pytestmark = pytest.mark.anyio

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
