"""A server that is cut off from PostgreSQL has no effect that another one has again."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, function_tool
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from copilot_runtime import Settings, action
from copilot_runtime.api import RunInput
from copilot_runtime.api.events import Events
from copilot_runtime.extensions.access.settings import AuditSettings
from copilot_runtime.extensions.assistants.agent import AssistantAgent
from copilot_runtime.extensions.assistants.folder import AssistantFolder
from copilot_runtime.testing import Gate, ScriptedAdapter, call, say
from copilot_runtime.threads.postgres import transaction
from tests.extensions.frameworks.sdk_model import Output, PlayingModel, text
from tests.extensions.frameworks.sdk_model import call as sdk_call
from tests.extensions.planner.kills import join_wire
from tests.wire_agui.http import Browser, Event
from tests.wire_agui.server import Parrot, browsing

pytestmark = pytest.mark.anyio

ASK = call("run_sub_agent", {"agent": "clerk", "prompt": "Pay."})
PAY = call("pay", {})

Build = Callable[[Callable[[], None], Gate, Path], tuple[Mapping[str, Any], int]]
"""Returns options of a server, and how many events of its models pass before it is cut off."""


def build_sub_agent(pay: Callable[[], None], gate: Gate, folder: Path) -> Any:
    """An assistant asks another one, which calls an action: that call is no event of the run."""
    (folder / "boss.agent.md").write_text("---\ntools: run_sub_agent\n---\nYou lead.")
    (folder / "clerk.agent.md").write_text("You pay.")
    assistants = AssistantFolder(folder, interval=0)
    assistants.load()
    model = ScriptedAdapter(ASK, PAY, say("Paid."), say("Done."), gate=gate)

    @action(name="pay")
    async def act() -> str:
        pay()
        return "paid"

    boss = AssistantAgent("boss", assistants, model)
    return {"agents": {"default": boss}, "actions": [act]}, len(ASK)


def build_handoff(pay: Callable[[], None], gate: Gate, folder: Path) -> Any:
    """A model hands over to an agent, which does what it does without a word."""

    async def clerk(run: RunInput) -> Events:
        pay()
        for event in say("Paid."):
            yield event

    model = ScriptedAdapter(call("clerk", {}), gate=gate)
    return {"adapter": model, "agents": {"clerk": clerk}}, len(PAY) - 1


def build_sdk_agent(pay: Callable[[], None], gate: Gate, folder: Path) -> Any:
    """An agent of an SDK calls one tool of its own, and then another one."""

    @function_tool
    async def think() -> str:
        await gate.wait()
        return "thought"

    @function_tool(name_override="pay")
    def act() -> str:
        pay()
        return "paid"

    def play(heard: list[Any]) -> Sequence[Output]:
        results = [one for one in heard if one.get("type") == "function_call_output"]
        return [[sdk_call("think"), sdk_call("pay", id="c2"), text("Paid.")][len(results)]]

    agent = Agent(name="Clerk", model=PlayingModel(play), tools=[think, act])
    return {"agents": {"default": agent}}, 0


def build_pydantic_agent(pay: Callable[[], None], gate: Gate, folder: Path) -> Any:
    """An agent of pydantic-ai calls one tool of its own, and then another one."""

    async def play(messages: list[Any], info: AgentInfo) -> AsyncIterator[Any]:
        results = len(messages) // 2
        if results == 2:
            yield "Paid."
        else:
            name = ("think", "act")[results]
            yield {0: DeltaToolCall(name=name, json_args="{}", tool_call_id=name)}

    clerk: Any = PydanticAgent(FunctionModel(stream_function=play))

    @clerk.tool_plain
    async def think() -> None:
        await gate.wait()

    @clerk.tool_plain
    def act() -> None:
        pay()

    return {"agents": {"default": clerk}}, 0


async def ask_until_answered(browser: Browser) -> list[Event]:
    """Ask until PostgreSQL has noticed that the other server is cut off."""
    while (events := (await browser.run(run="r2")).events())[-1].get("code") == "THREAD_BUSY":
        pass
    return events


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take PostgreSQL as one that has run for long: servers need no time to come back to it."""
    monkeypatch.setattr(transaction, "LEASE", 0)


async def test_a_run_that_another_server_has_ended_has_one_end_in_the_audit_log(
    database: str, tmp_path: Path
) -> None:
    gate, file = Gate(), tmp_path / "audit.jsonl"
    audit = AuditSettings(file=str(file))
    async with (
        join_wire(database) as wire,
        browsing(Parrot(gate=gate), settings=Settings(threads=wire.url, audit=audit)) as one,
        browsing(settings=Settings(threads=database, audit=audit)) as other,
    ):
        asked = asyncio.create_task(one.run(run="r1"))
        await gate.wait_for_event()
        wire.cut()
        await ask_until_answered(other)
        await wire.join()
        gate.release(99)
        await asked
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    [end] = [line for line in lines if line["action"] == "run.end" and line["run"] == "r1"]

    assert "Its process died, and another one ended it." in end["reason"]


@pytest.mark.parametrize(
    "build", [build_sub_agent, build_handoff, build_sdk_agent, build_pydantic_agent]
)
async def test_a_question_repeated_at_another_server_takes_effect_once(
    database: str, tmp_path: Path, build: Build
) -> None:
    payments: list[str] = []
    gates = Gate(), Gate()
    (options, events), (others, _) = (
        build(lambda: payments.append("one"), gates[0], tmp_path),
        build(lambda: payments.append("other"), gates[1], tmp_path),
    )
    gates[1].release(99)
    async with (
        join_wire(database) as wire,
        browsing(settings=Settings(threads=wire.url, hand_over="always"), **options) as one,
        browsing(settings=Settings(threads=database, hand_over="always"), **others) as other,
    ):
        asked = asyncio.create_task(one.run(run="r1"))
        gates[0].release(events)
        await gates[0].wait_for_event()
        wire.cut()
        assert (await ask_until_answered(other))[-1]["type"] == "RUN_FINISHED"
        gates[0].release(99)
        await wire.join()
        assert (await asked).events()[-1]["type"] == "RUN_ERROR"

    assert payments == ["other"]
