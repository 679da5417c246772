"""Node runtimes in front of ours: their clients get what our agents and actions say."""

import json
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.v1 import node as v1
from tests.conformance.v1.node import ROOT, need_node, started
from tests.conformance.v2 import node as v2
from tests.npm import install
from tests.processes import finished

Found = dict[str, Any]


@pytest.fixture(scope="module")
def ours() -> Generator[str, None, None]:
    need_node()
    with started(sys.executable, "-m", "tests.conformance.behind_node", cwd=ROOT) as address:
        yield address


@pytest.fixture(scope="module")
def behind_v1(ours: str) -> Found:
    """Drive the Node runtime 1.10.6, which has ours as its remote endpoint."""
    v1.install()
    install(v1.HERE / "node-runtime")
    with started("node", "mock-llm.mjs", cwd=v1.HERE) as llm:
        addresses = [f"MOCK_URL={llm}", f"REMOTE_URL={ours}"]
        command = ["env", *addresses, "node", "node-runtime.mjs"]
        with started(*command, cwd=v1.HERE / "node-runtime") as address:
            return driven(v1.HERE, address)


@pytest.fixture(scope="module", params=["ask", "run", "node"])
def behind_v2(ours: str, request: pytest.FixtureRequest) -> Found:
    """Drive AG-UI's own client: against us, and against the Node runtime 1.74 in front of us."""
    v2.install()
    agent = f"{ours}/ck/agent/default"
    if request.param != "node":
        return driven(v2.HERE, f"{agent}/{request.param}")
    v2.install(v2.HERE / "node-runtime")
    command = ["env", f"AGENT_URL={agent}/ask", "node", "node-runtime.mjs"]
    with started(*command, cwd=v2.HERE / "node-runtime") as address:
        return driven(v2.HERE, f"{address}/api/copilotkit/agent/default/run")


def driven(folder: Path, address: str) -> Found:
    command = ["node", "behind-node.mjs", address]
    done = finished(command, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def texts(turn: Any) -> list[str]:
    return [message["content"] for message in turn["messages"] if message.get("content")]


def status(turn: Any) -> str:
    return turn["status"]["code"]


def test_the_model_of_node_calls_our_action(behind_v1: Found) -> None:
    called, answered = behind_v1["action"]

    assert (called["messages"][1]["result"], texts(answered)) == ("5.0", ["Tool said: 5.0"])


def test_our_agent_streams_text_and_state_through_node(behind_v1: Found) -> None:
    [turn] = behind_v1["agent"]
    state = next(message for message in turn["messages"] if message["type"] == "AgentStateMessage")

    assert (texts(turn), state["state"], state["running"]) == (
        ["Agent says hi"],
        {"step": 2},
        False,
    )


def test_our_agent_knows_the_state_that_the_page_remembers(behind_v1: Found) -> None:
    [turn] = behind_v1["error"]  # it ends before the second state, so that the first one is left
    state = next(message for message in turn["messages"] if message["type"] == "AgentStateMessage")

    assert state["state"] == {"step": 1, "known": {"research_agent": {}}}


def test_our_agent_asks_a_person_through_node(behind_v1: Found) -> None:
    asked, answered = behind_v1["interrupt"]

    assert asked["metaEvents"][0]["value"] == "Your name?"
    assert texts(answered) == ["Hello Ada"]


def test_an_agent_of_ours_that_fails_fails_in_the_browser(behind_v1: Found) -> None:
    [turn] = behind_v1["error"]

    assert (texts(turn), status(turn)) == (["Agent says hi"], "Failed")


def test_an_action_that_both_know_is_run_once(behind_v1: Found) -> None:
    [turn] = behind_v1["ouraction"]

    assert [message["type"] for message in turn["messages"]] == ["TextMessage"]
    assert texts(turn) == ["It came to 3.0"]


def test_our_agent_uses_what_the_page_can_do(behind_v1: Found) -> None:
    called, answered = behind_v1["pageaction"]

    assert called["messages"][0]["arguments"] == {"color": "blue"}
    assert texts(answered) == ["It came to done setColor"]


def test_our_agent_streams_text_and_state_to_ag_ui(behind_v2: Found) -> None:
    assert behind_v2["text"] == {
        "messages": [{"id": "said-1", "role": "assistant", "content": "Agent says hi"}],
        "state": {"step": 2},
        "error": None,
    }


def test_a_client_of_ag_ui_is_called_and_heard(behind_v2: Found) -> None:
    [called] = behind_v2["pageaction"]["messages"]

    assert called["toolCalls"][0]["function"]["arguments"] == '{"color":"blue"}'
    assert texts(behind_v2["followed"]) == ["It came to done"]


def test_actions_of_ours_are_run_here_and_shown_there(behind_v2: Found) -> None:
    assert [message["role"] for message in behind_v2["ouraction"]["messages"]] == [
        "assistant",
        "tool",
        "assistant",
    ]


def test_a_client_of_ag_ui_hears_why_an_agent_failed(behind_v2: Found) -> None:
    assert behind_v2["error"]["error"] == "The model is down."
