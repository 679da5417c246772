"""Assistants and tools of files are resources: policies apply to them, and searches find them."""

from collections.abc import Mapping
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.api import RunInput
from copilot_runtime.base.errors import StoreFailed
from copilot_runtime.extensions.assistants.settings import AssistantSettings
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.resources import Resource
from copilot_runtime.extensions.knowledge.settings import KnowledgeSettings
from copilot_runtime.extensions.planner.settings import PlannerSettings
from copilot_runtime.extensions.tools.catalog import ToolCatalog
from copilot_runtime.storage import MemoryStorage
from copilot_runtime.testing import call, say
from tests.extensions.knowledge.library import WordCounter
from tests.extensions.knowledge.test_served import sign_in, wait_until_ready
from tests.extensions.knowledge.uploads.chat import ask, question

BOSS = """---
description: Leads.
tools: [run_sub_agent, "price_*", "stock"]
handoffs:
  - {label: figures, agent: analyst, prompt: Count.}
  - {label: letters, agent: writer, prompt: Write.}
---
You lead, and your password is swordfish.
"""
ANALYST = "---\npurpose: Know figures.\ninstructions: Count twice.\n---\nYou count."
WRITER = "---\npurpose: Write letters.\n---\nYou write."
TOOLS = """
stock:
  purpose: Say how much of a fruit there is.
  endpoint: {function: "tests.extensions.knowledge.test_offers:read_stock"}
price:
  purpose: Say what a fruit costs.
  endpoint: {function: "tests.extensions.knowledge.test_offers:read_price"}
"""
POLICY = """
default: allow
rules:
  - {deny: read, users: bob, resources: [common.Assistant.analyst, tool.ToolFunction.price]}
"""


def read_stock(fruit: str) -> str:
    return f"5 {fruit}"


def read_price(fruit: str) -> str:
    return f"{fruit}: 41 crowns"


@pytest.fixture(autouse=True)
def look_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the files for each request, not once a second."""
    monkeypatch.setattr("copilot_runtime.config.file_watcher._INTERVAL", 0.0)


def build_knowledge(folder: Path, policy: str = POLICY) -> Knowledge:
    (folder / "policy.yml").write_text(policy)
    return Knowledge(
        MemoryStorage(),
        settings=KnowledgeSettings(),
        embedder=WordCounter(),
        policy=folder / "policy.yml",
    )


def build_runtime(folder: Path, *turns: Any, **more: Any) -> CopilotRuntime:
    assistants = folder / "assistants"
    assistants.mkdir()
    for name, text in {"boss": BOSS, "analyst": ANALYST, "writer": WRITER}.items():
        (assistants / f"{name}.agent.md").write_text(text)
    (folder / "tools.yml").write_text(TOOLS)
    settings = Settings(
        threads="memory",
        assistants=AssistantSettings(folder=str(assistants)),
        tools=str(folder / "tools.yml"),
        planner=PlannerSettings(name="planner", store="memory", fallback="writer"),
        **more,
    )
    return CopilotRuntime(
        ScriptedAdapter(*turns),
        knowledge=build_knowledge(folder),
        settings=settings,
        authenticate=sign_in,
    )


def list_agents(client: TestClient, user: str) -> set[str]:
    answer = client.get("/graphql/info", headers={"x-user": user})
    return {*answer.json()["agents"]} - {"default"}


def list_resources(client: TestClient, user: str, type: str) -> list[str]:
    params = {"type": type, "limit": 100}
    headers = {"x-user": user}
    answer = client.get("/graphql/knowledge/resources", params=params, headers=headers)
    return sorted(row["id"] for row in answer.json()["resources"])


def wait_for(client: TestClient, type: str, *names: str) -> None:
    """Return once there are these resources of a type: they are written beside all else."""
    while list_resources(client, "ann", type) != [f"{type}.{name}" for name in names]:
        sleep(0.01)


def run_as(user: str) -> RunInput:
    return RunInput(thread_id="t", run_id="r", messages=(), user=user)


def test_assistants_and_tools_are_resources_while_their_files_are_there(tmp_path: Path) -> None:
    with TestClient(build_runtime(tmp_path, say("Hi.")).app()) as client:
        wait_for(client, "common.Assistant", "analyst", "boss", "writer")
        wait_for(client, "tool.ToolFunction", "price", "stock")
        (tmp_path / "assistants" / "analyst.agent.md").unlink()
        boss = BOSS.replace("agent: analyst", "agent: writer")
        (tmp_path / "assistants" / "boss.agent.md").write_text(boss)
        (tmp_path / "assistants" / "cook.agent.md").write_text("You cook.")
        (tmp_path / "tools.yml").write_text(TOOLS.replace("price:", "cost:"))
        ask(client, question("Hi."), agent="writer")
        wait_for(client, "common.Assistant", "boss", "cook", "writer")
        wait_for(client, "tool.ToolFunction", "cost", "stock")


def test_a_resource_shows_nothing_of_instructions_and_endpoints(tmp_path: Path) -> None:
    with TestClient(build_runtime(tmp_path).app()) as client:
        wait_for(client, "common.Assistant", "analyst", "boss", "writer")
        wait_for(client, "tool.ToolFunction", "price", "stock")
        for uri in ("common.Assistant.boss", "tool.ToolFunction.stock"):
            url = f"/graphql/knowledge/resources/{uri}"
            text = client.get(url, headers={"x-user": "ann", "accept": "application/json"}).text
            assert "swordfish" not in text
            assert "read_stock" not in text


def test_whom_a_policy_denies_an_assistant_neither_sees_nor_runs_it(tmp_path: Path) -> None:
    with TestClient(build_runtime(tmp_path, say("42.")).app()) as client:
        wait_until_ready(client)
        every = {"boss", "analyst", "writer", "planner"}
        assert list_agents(client, "ann") == every
        assert list_agents(client, "bob") == every - {"analyst"}
        wait_for(client, "common.Assistant", "analyst", "boss", "writer")
        assert list_resources(client, "bob", "common.Assistant") == [
            "common.Assistant.boss",
            "common.Assistant.writer",
        ]
        body = {"threadId": "t", "runId": "r", "state": {}, "messages": [], "tools": []}
        answer = client.post(
            "/graphql/agent/analyst/run",
            json={**body, "context": [], "forwardedProps": {}},
            headers={"x-user": "bob"},
        )
        assert answer.status_code == 404


def test_a_denied_assistant_is_no_sub_agent_and_takes_no_conversation_over(
    tmp_path: Path,
) -> None:
    runtime = build_runtime(tmp_path, say("Hi."), say("Hi."))
    with TestClient(runtime.app()) as client:
        wait_until_ready(client)
        for user in ("ann", "bob"):
            ask(client, question("Hi."), agent="boss", user=user)
    anns, bobs = (str(request.actions) for request in runtime.adapter.requests)  # pyright: ignore
    assert "analyst" in anns
    assert "figures" in anns
    assert "analyst" not in bobs
    assert "figures" not in bobs
    assert "letters" in bobs


def test_a_denied_assistant_is_not_elected(tmp_path: Path) -> None:
    plan = call("create_plan", {"tasks": [{"name": "sum", "purpose": "Know figures."}]})
    named = call(
        "create_plan", {"tasks": [{"name": "sum", "purpose": "Sum.", "assistant": "analyst"}]}
    )
    verdict = call("report_evaluation", {"passed": False, "missing": "Nobody."})
    runtime = build_runtime(tmp_path, plan, say("42."), plan, say("43."), named, verdict)
    with TestClient(runtime.app()) as client:
        wait_until_ready(client)
        elected = []
        for user, thread in (("ann", "a"), ("bob", "b")):
            events = ask(client, question("Sum?"), agent="planner", user=user, thread=thread)
            changes = [change for event in events for change in event.get("patch", ())]
            elected += [it["value"] for it in changes if it["path"] == "/tasks/0/assistant"]
        assert elected == ["analyst", "writer"]
        events = ask(client, question("Sum?"), agent="planner", user="bob", thread="c")
        assert "There is no assistant 'analyst' for the task 'sum'." in str(events)


def test_whom_a_policy_denies_a_tool_is_not_offered_it(tmp_path: Path) -> None:
    runtime = build_runtime(tmp_path, *[say("Hi.")] * 3)
    with TestClient(runtime.app()) as client:
        wait_until_ready(client)
        for number, user in enumerate(("ann", "bob", "ann")):
            ask(client, question("Hi.", id=f"q{number}"), user=user)
    offers = [
        {action.name for action in request.actions} & {"price", "stock"}
        for request in runtime.adapter.requests  # pyright: ignore
    ]
    assert offers == [{"price", "stock"}, {"stock"}, {"price", "stock"}]


@pytest.mark.anyio
async def test_a_denied_tool_can_be_called_by_no_way(tmp_path: Path) -> None:
    (tmp_path / "tools.yml").write_text(TOOLS)
    knowledge = build_knowledge(tmp_path)

    async def select(names: Any, user: str | None) -> list[str]:
        return await knowledge.select_names("tool.ToolFunction", names, user)

    catalog = ToolCatalog(tmp_path / "tools.yml", select_names=select)
    catalog.load()
    results: dict[str, Any] = {}
    for user in ("ann", "bob"):
        context = run_as(user).action_context("c")
        function = {"name": "price", "arguments": '{"fruit": "quince"}'}
        results[user] = [
            (await catalog.call("price", '{"fruit": "quince"}', context)).content,
            (await catalog.call_request({"function": function}, context)).content,
            [one.name for one in await catalog.describe_all(run_as(user))],
            [one.name for one in await catalog.actions(run_as(user))],
        ]
    price, refusal = "quince: 41 crowns", '{"error":"Tool endpoint not found: price"}'
    assert results["ann"] == [price, price, ["stock", "price"], ["stock", "price"]]
    assert results["bob"] == [refusal, refusal, ["stock"], ["stock"]]
    await catalog.aclose()


@pytest.mark.anyio
async def test_without_a_policy_everybody_may_use_everything() -> None:
    knowledge = Knowledge(MemoryStorage(), settings=KnowledgeSettings(), embedder=WordCounter())
    assert await knowledge.select_names("common.Assistant", ["a", "b"], None) == ["a", "b"]


def describe(**purposes: str) -> Mapping[str, Any]:
    return {name: {"content": text, "purpose": text} for name, text in purposes.items()}


@pytest.mark.anyio
async def test_a_search_for_a_type_finds_what_no_index_has(tmp_path: Path) -> None:
    knowledge = build_knowledge(tmp_path)
    purposes = describe(analyst="Know figures and sums.", writer="Write letters.")
    mirror = knowledge.mirror("common.Assistant", "assistants", lambda: purposes)
    knowledge.start()
    await mirror.flush()
    found = await knowledge.search("Who can write a letter to Ann?", type="common.Assistant")
    assert [passage.id for passage in found] == ["common.Assistant.writer"]
    more = await knowledge.search(["letters", "sums"], type="common.Assistant", limit=2)
    assert {passage.id for passage in more} == {
        "common.Assistant.writer",
        "common.Assistant.analyst",
    }
    assert await knowledge.search("letters") == []
    assert await knowledge.search("letters", type="plan.Task") == []
    await knowledge.aclose()


@pytest.mark.anyio
async def test_a_mirror_leaves_what_others_have_put_and_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.knowledge.mirror._RETRY", 0)
    knowledge = build_knowledge(tmp_path)
    theirs = Resource(Identifier("common.Assistant", "theirs"), "Not of a file.")
    await knowledge.resources.put(theirs)
    put, failures = knowledge.resources.put_many, [StoreFailed("The disk is full.")] * 2

    async def fail_first(*args: Any, **more: Any) -> int:
        if failures:
            raise failures.pop()
        return await put(*args, **more)

    monkeypatch.setattr(knowledge.resources, "put_many", fail_first)
    current = dict(describe(a="A.", b="B."))
    mirror = knowledge.mirror("common.Assistant", "assistants", lambda: current)
    mirror.update()
    mirror.update()
    await mirror.flush()
    del current["a"]
    mirror.update()
    await mirror.flush()
    await mirror.aclose()
    await mirror.aclose()
    found = await knowledge.resources.find_by_type("common.Assistant")
    assert sorted(one.name for one in found) == ["b", "theirs"]
    assert caplog.text.count("The assistants are no resources for now") == 1
