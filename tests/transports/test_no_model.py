"""What a runtime without a model says to those who ask for one."""

from dataclasses import replace
from typing import Any

import pytest
from fastapi import Depends, FastAPI, HTTPException, Request
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, Events, RunInput, Settings
from copilot_runtime.adapters.scripted import say
from copilot_runtime.api.hooks import Hooks
from tests.extensions.mcp.server.clients import over_http, text_of
from tests.in_one_test import in_one_test
from tests.transports.served import runtime_of
from tests.wire.client import PLAIN, chat
from tests.wire_agui.http import Browser, run_input
from tests.wire_agui.server import PATH, serving

pytestmark = pytest.mark.anyio

doors = pytest.mark.parametrize("door", ["agui", "graphql"])


class Clerk:
    async def run(self, run: RunInput) -> Events:
        for event in say("Hello"):
            yield event


def ask(client: TestClient, door: str, **more: Any) -> str:
    if door == "agui":
        return client.post("/graphql/agent/default/run", json=run_input()).text
    return client.post("/graphql", json=chat(query=PLAIN, **more)).text


def build(**parts: Any) -> CopilotRuntime:
    return CopilotRuntime(settings=Settings(threads="memory"), **parts)


@doors
def test_a_runtime_of_nothing_says_what_to_give_it(
    door: str, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = build()
    assert "neither a model nor an agent" in caplog.text

    with TestClient(runtime.app()) as client:
        answer = ask(client, door)
    assert "This runtime has no model and no agents, so nothing can answer." in answer
    assert "Give CopilotRuntime an adapter such as OpenAIAdapter(), or agents." in answer
    assert "MISUSE" in answer
    assert "EmptyAdapter" not in answer + caplog.text


@in_one_test(("agents", "kind"), [(["clerk", "cook"], "Chat"), (["clerk"], "Suggestion")])
def test_a_chat_without_an_agent_is_told_which_agents_there_are(
    agents: list[str], kind: str
) -> None:
    runtime = build(agents=dict.fromkeys(agents, Clerk()))
    with TestClient(runtime.app()) as client:
        answer = ask(client, "graphql", metadata={"requestType": kind})
    assert f"Name one of its agents ({', '.join(agents)}), or give CopilotRuntime an" in answer
    assert "EmptyAdapter" not in answer


@doors
def test_a_hook_may_choose_the_agent_where_there_is_no_model(door: str) -> None:
    def choose(run: RunInput) -> RunInput:
        return replace(run, agent="cook")

    runtime = build(
        agents=dict.fromkeys(["clerk", "cook"], Clerk()), hooks=Hooks(before_request=choose)
    )
    with TestClient(runtime.app()) as client:
        path, body = "", chat(query=PLAIN)
        if door == "agui":
            path, body = "/agent/clerk/run", run_input()
        assert "Hello" in client.post(f"/graphql{path}", json=body).text


def signed_in(request: Request) -> None:
    if "authorization" not in request.headers:
        raise HTTPException(401)


def application() -> FastAPI:
    app = FastAPI()
    runtime_of().mount(app, PATH, dependencies=[Depends(signed_in)])
    return app


async def test_the_remote_endpoint_is_there_for_who_may_come_in() -> None:
    body = {"name": "add", "arguments": {"a": 1}}
    async with serving(application()) as port:
        refused = await Browser(port).ask("POST", "/actions/execute", body)
        welcome = await Browser(port).signed_in("ann").ask("POST", "/actions/execute", body)
    assert (refused.status, welcome.json()) == (401, {"result": "2"})


async def test_the_mcp_server_is_there_too() -> None:
    headers = {"authorization": "Bearer ann"}
    async with serving(application()) as port, over_http(Browser(port), headers) as session:
        assert text_of(await session.call_tool("add", {"a": 1})) == "2"
