"""What a runtime without a model says to those who ask for one."""

from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, Events, RunInput, Settings
from copilot_runtime.adapters.scripted import say
from copilot_runtime.api.hooks import Hooks
from tests.in_one_test import in_one_test
from tests.wire.documents import PLAIN, chat
from tests.wire_agui.http import run_input

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
