"""Assistants come and go with their files, while the server runs."""

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.agents.registry import AgentRegistry
from copilot_runtime.api import Agent, Caller, RunInput
from copilot_runtime.api.events import Events
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.assistants.settings import AssistantSettings
from copilot_runtime.extensions.planner.settings import PlannerSettings
from copilot_runtime.telemetry import LocalTelemetry, semconv
from copilot_runtime.testing import call, say
from tests.extensions.knowledge.uploads.chat import ask, question
from tests.in_one_test import in_one_test
from tests.telemetry.recorded import Spans
from tests.yaml_bombs import BOMBS

WRITER = "---\ndescription: Writes letters.\n---\nYou write."
ANALYST = "---\ndescription: Knows figures.\n---\nYou count."
BOSS = "---\ndescription: Leads.\ntools: run_sub_agent\n---\nYou lead."


@pytest.fixture(autouse=True)
def look_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the files for each request, not once a second."""
    monkeypatch.setattr("copilot_runtime.config.file_watcher._INTERVAL", 0.0)


def write(folder: Path, **files: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.agent.md").write_text(text)


def build_runtime(folder: Path, *turns: Any, planner: str = "", **more: Any) -> CopilotRuntime:
    settings = Settings(
        threads="memory",
        assistants=AssistantSettings(folder=str(folder)),
        planner=PlannerSettings(name=planner, store="memory"),
    )
    return CopilotRuntime(ScriptedAdapter(*turns), settings=settings, **more)


def list_agents(client: TestClient) -> set[str]:
    return {*client.get("/graphql/info").json()["agents"]} - {"default"}


def read_text(events: list[dict[str, Any]]) -> str:
    texts = (event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")
    return "".join(texts)


def test_a_new_file_is_an_agent_at_the_next_request_and_a_removed_one_is_gone(
    tmp_path: Path,
) -> None:
    write(tmp_path / "a", writer=WRITER)
    with TestClient(build_runtime(tmp_path / "a", say("42.")).app()) as client:
        assert list_agents(client) == {"writer"}
        write(tmp_path / "a", analyst=ANALYST)
        assert read_text(ask(client, question("Count."), agent="analyst")) == "42."
        assert list_agents(client) == {"writer", "analyst"}
        (tmp_path / "a" / "writer.agent.md").unlink()
        assert list_agents(client) == {"analyst"}
        body = {"threadId": "t", "runId": "r", "state": {}, "messages": [], "tools": []}
        answer = client.post(
            "/graphql/agent/writer/run", json={**body, "context": [], "forwardedProps": {}}
        )
        assert answer.status_code == 404


def test_a_new_file_with_a_mistake_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "a", writer=WRITER)
    with TestClient(build_runtime(tmp_path / "a").app()) as client:
        write(tmp_path / "a", analyst="---\nnmae: x\n---\nYou count.")
        assert list_agents(client) == {"writer"}
        assert "The assistants stay as they were" in caplog.text


@in_one_test("bomb", BOMBS)
def test_a_new_file_whose_aliases_repeat_too_much_is_refused_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, bomb: str
) -> None:
    write(tmp_path / "a", writer=WRITER)
    with TestClient(build_runtime(tmp_path / "a").app()) as client:
        write(tmp_path / "a", analyst=f"---\n{bomb}---\nYou count.")
        assert list_agents(client) == {"writer"}
        assert "analyst.agent.md:6: aliases (`*name`) repeat more than 100,000" in caplog.text


def test_a_new_file_with_the_name_of_another_agent_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "a", writer=WRITER)
    own = {"analyst": DirectAgent(ScriptedAdapter(say("From the program.")))}
    runtime = build_runtime(tmp_path / "a", planner="boss", agents=own)
    with TestClient(runtime.app()) as client:
        write(tmp_path / "a", analyst=ANALYST, boss=BOSS)
        assert list_agents(client) == {"writer", "analyst", "boss"}
        assert read_text(ask(client, question("Hi."), agent="analyst")) == "From the program."
    for name in ("analyst", "boss"):
        assert caplog.text.count(f"The agent '{name}' of a file is ignored") == 1


@in_one_test("more", [{"agents": {"writer": DirectAgent(ScriptedAdapter())}}, {}])
def test_two_agents_of_one_name_are_a_mistake_at_the_start(tmp_path: Path, more: Any) -> None:
    write(tmp_path / "a", writer=WRITER)
    with pytest.raises(ConfigurationFailed, match="Two agents have the name 'writer'"):
        build_runtime(tmp_path / "a", planner="" if more else "writer", **more)


def test_a_planner_and_an_agent_of_one_name_are_a_mistake(tmp_path: Path) -> None:
    registry = AgentRegistry({"a": DirectAgent(ScriptedAdapter())})
    with pytest.raises(ConfigurationFailed, match="Two agents have the name 'a'"):
        registry.add_planner("a", DirectAgent(ScriptedAdapter()))


def test_a_new_assistant_does_tasks_of_the_next_plan(tmp_path: Path) -> None:
    write(tmp_path / "a", writer=WRITER)
    plan = call("create_plan", {"tasks": [{"name": "sum", "purpose": "Know the figures."}]})
    runtime = build_runtime(tmp_path / "a", plan, say("42."), planner="planner")
    with TestClient(runtime.app()) as client:
        write(tmp_path / "a", analyst=ANALYST)
        events = ask(client, question("What is the sum?"), agent="planner")
    changes = [change for event in events for change in event.get("patch", ())]
    assert "analyst" in [
        change["value"] for change in changes if change["path"] == "/tasks/0/assistant"
    ]
    assert read_text(events).endswith("42.")


class Plain(Agent):
    """An agent that notes when it is opened and closed."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    async def open(self) -> None:
        self.notes.append("open")

    async def run(self, run: RunInput) -> Events:
        for event in say("Plain."):
            yield event

    async def aclose(self) -> None:
        self.notes.append("close")


def test_a_planner_beside_agents_of_each_caller_is_opened_and_closed(tmp_path: Path) -> None:
    def find(caller: Caller) -> Any:
        return {"plain": Plain()}

    plan = call("create_plan", {"tasks": [{"name": "sum", "purpose": "Know the figures."}]})
    settings = Settings(
        threads="memory",
        planner=PlannerSettings(name="planner", store=f"sqlite:{tmp_path / 'plans.db'}"),
    )
    runtime = CopilotRuntime(ScriptedAdapter(plan), agents=find, settings=settings)
    with TestClient(runtime.app()) as client:
        assert list_agents(client) == {"plain", "planner"}
        assert read_text(ask(client, question("Do it."), agent="planner")) == "Plain."


def test_agents_of_the_program_are_opened_and_closed_beside_files(tmp_path: Path) -> None:
    write(tmp_path / "a", writer=WRITER)
    plain = Plain()
    with TestClient(build_runtime(tmp_path / "a", agents={"plain": plain}).app()) as client:
        assert list_agents(client) == {"plain", "writer"}
    assert plain.notes == ["open", "close"]


def test_a_function_that_returns_no_agents_is_named_beside_files(tmp_path: Path) -> None:
    write(tmp_path / "a", writer=WRITER)

    def find(caller: Caller) -> Any:
        return ["plain"]

    with TestClient(build_runtime(tmp_path / "a", agents=find).app()) as client:
        assert "The agents function returned a list" in client.get("/graphql/info").text


def test_a_sub_agent_has_one_span(tmp_path: Path) -> None:
    spans = Spans()
    write(tmp_path / "a", boss=BOSS, analyst=ANALYST)
    turns = (
        call("run_sub_agent", {"agent": "analyst", "prompt": "Count."}),
        say("42."),
        say("It is 42."),
    )
    runtime = build_runtime(tmp_path / "a", *turns, telemetry=LocalTelemetry(spans))
    with TestClient(runtime.app()) as client:
        ask(client, question("How many?"), agent="boss")
    assert [span.name for span in spans.of(semconv.EXECUTE_TOOL)] == ["execute_tool run_sub_agent"]
    assert [span.name for span in spans.of(semconv.INVOKE_AGENT)] == [
        "invoke_agent analyst",
        "invoke_agent boss",
    ]
