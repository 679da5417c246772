"""A server dies in the middle of an assistant's work, and the next one goes on with the plan."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime import action
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api import Action, Agent, RunInput
from copilot_runtime.api.events import Events
from copilot_runtime.api.messages import ActionExecutionMessage, ResultMessage
from copilot_runtime.extensions.planner.build import build_log
from copilot_runtime.extensions.planner.engine import PlanEngine
from copilot_runtime.extensions.planner.events import Answer, PlanEntry, QuestionAsked
from copilot_runtime.extensions.planner.log import PlanQuery
from copilot_runtime.extensions.planner.plan import Plan
from copilot_runtime.extensions.planner.postgres import PostgresPlanLog
from copilot_runtime.extensions.planner.sqlite import SqlitePlanLog
from copilot_runtime.extensions.planner.worker import AgentWorker
from copilot_runtime.testing import ScriptedAdapter, call, say
from tests.extensions.planner.crew import Crew, always, build_plan, wait_until
from tests.extensions.planner.kills import CALLS, TASKS, count_effects, join_wire
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

LOOK, SEND = call("look", {"at": "x"}, id="call-look"), call("send", {"to": "ann"}, id="call-send")
"""Two calls; each has the same id whenever it is made."""


class Server:
    """An engine whose one assistant is a model by script, with two tools of which one may hang."""

    def __init__(
        self,
        path: Path,
        *turns: Any,
        hangs_at: str = "",
        fails_at: str = "",
        without: str = "",
        opaque: frozenset[str] = frozenset(),
    ) -> None:
        self.effects: list[str] = []
        self.hung = asyncio.Event()
        self.model = ScriptedAdapter(*turns)
        self._hangs_at = hangs_at
        self._fails_at = fails_at
        tools = [one for one in self._build_tools() if one.name != without]
        writer = DirectAgent(self.model)

        async def find_run(plan: Plan) -> RunInput:
            del plan
            return RunInput(thread_id="t", run_id="r", messages=[], actions=tools)

        async def list_agents(plan: Plan) -> Mapping[str, Agent]:
            del plan
            return {"writer": writer}

        crew = Crew(opaque=opaque)
        log = SqlitePlanLog(path / "plans.db")
        self.engine = PlanEngine(log, crew, AgentWorker(list_agents, find_run), crew)

    def _build_tools(self) -> Sequence[Action]:
        async def have(name: str) -> str:
            self.effects.append(name)
            if name == self._hangs_at:
                self.hung.set()
                await asyncio.Event().wait()
            if name == self._fails_at:
                raise KeyError
            return f"{name} done"

        @action(is_idempotent=True)
        async def look(at: str) -> str:
            return await have("look")

        @action
        async def send(to: str) -> str:
            return await have("send")

        return [look, send]


async def die(server: Server) -> str:
    """Begin a plan, and die when a tool hangs. Return the plan's id."""
    await server.engine.open()
    plan_id = await server.engine.submit(build_plan("a"))
    await server.hung.wait()
    await server.engine.aclose()
    return plan_id


async def go_on(
    server: Server, plan_id: str, answer: Answer | None = None, note: str = ""
) -> Sequence[str]:
    """Carry the plan out to its end, and return the questions that were asked and answered."""
    await server.engine.open()
    asked: list[str] = []
    async for entry in server.engine.follow(plan_id):
        if isinstance(entry, PlanEntry) and isinstance(event := entry.event, QuestionAsked):
            assert answer is not None
            asked.append(event.text)
            await server.engine.answer(plan_id, event.question_id, answer, note=note)
    return asked


def read(server: Server) -> list[str]:
    """Return what the model has read in the first request, behind the task."""
    lines: list[str] = []
    for message in server.model.requests[0].messages:
        if isinstance(message, ActionExecutionMessage):
            lines.append(f"{message.id}: {message.name}")
        elif isinstance(message, ResultMessage):
            lines.append(f"{message.call_id} -> {message.result}")
    return lines


async def test_a_call_that_may_be_made_twice_is_made_again(tmp_path: Path) -> None:
    first = Server(tmp_path, SEND, LOOK, hangs_at="look")
    plan_id = await die(first)
    second = Server(tmp_path, say("All done."))
    assert await go_on(second, plan_id) == []
    assert (first.effects, second.effects) == (["send", "look"], ["look"])
    assert read(second) == [
        "call-send: send",
        "call-send -> send done",
        "call-look: look",
        "call-look -> look done",
    ]
    assert (await second.engine.get(plan_id)).root.output == "All done."
    await second.engine.aclose()


async def test_an_error_that_says_nothing_is_kept_by_its_name(tmp_path: Path) -> None:
    first = Server(tmp_path, LOOK, SEND, hangs_at="send", fails_at="look")
    plan_id = await die(first)
    second = Server(tmp_path, say("All done."))
    await go_on(second, plan_id, "done", "Sent.")
    told = first.model.requests[1].messages[-1]
    assert isinstance(told, ResultMessage)
    assert read(second)[1] == f"call-look -> {told.result}"
    assert "KeyError" in told.result
    await second.engine.aclose()


async def test_a_call_of_a_tool_that_is_gone_is_told_to_the_model(tmp_path: Path) -> None:
    plan_id = await die(Server(tmp_path, LOOK, hangs_at="look"))
    second = Server(tmp_path, say("It is not there."), without="look")
    await go_on(second, plan_id)
    assert "There is no 'look' now." in read(second)[1]
    await second.engine.aclose()


@in_one_test(
    ("answer", "effects", "result"),
    [("done", [], "It was sent."), ("retry", ["send"], "send done")],
)
async def test_a_person_says_what_became_of_any_other_call(
    tmp_path: Path, answer: Answer, effects: list[str], result: str
) -> None:
    plan_id = await die(Server(tmp_path, SEND, hangs_at="send"))
    turns = [say("All done.")] if answer == "done" else [SEND, say("All done.")]
    second = Server(tmp_path, *turns)
    (question,) = await go_on(second, plan_id, answer, "It was sent.")
    assert question == (
        "The call of 'send' with {\"to\":\"ann\"} for the task 'a' was interrupted: it is "
        "unknown whether it was done."
    )
    assert second.effects == effects
    results = second.model.requests[-1].messages[-1]
    assert isinstance(results, ResultMessage)
    assert results.result == result
    await second.engine.aclose()


async def test_a_person_gives_a_task_up_whose_call_was_interrupted(tmp_path: Path) -> None:
    plan_id = await die(Server(tmp_path, SEND, hangs_at="send"))
    second = Server(tmp_path)
    await go_on(second, plan_id, "fail", "Too late.")
    plan = await second.engine.get(plan_id)
    assert (plan.tasks["1"].status, plan.tasks["1"].reason) == ("failed", "Too late.")
    await second.engine.aclose()


@in_one_test(
    ("answer", "effects", "output"),
    [("done", [], "It was sent."), ("retry", ["look", "send"], "All done.")],
)
async def test_one_question_settles_a_call_of_an_agent_whose_other_calls_are_not_seen(
    tmp_path: Path, answer: Answer, effects: list[str], output: str
) -> None:
    plan_id = await die(Server(tmp_path, SEND, hangs_at="send", opaque=frozenset("a")))
    second = Server(tmp_path, LOOK, SEND, say("All done."))
    (question,) = await go_on(second, plan_id, answer, "It was sent.")
    assert question == (
        "The task 'a' was interrupted, and what 'writer' had done by then is not known. Under way "
        'was the call of \'send\' with {"to":"ann"}.'
    )
    assert second.effects == effects
    assert (await second.engine.get(plan_id)).tasks["1"].output == output
    await second.engine.aclose()


async def test_long_arguments_of_a_call_are_cut_in_the_question(tmp_path: Path) -> None:
    long = call("send", {"to": "ann" * 1_000}, id="call-send")
    plan_id = await die(Server(tmp_path, long, hangs_at="send"))
    second = Server(tmp_path, say("All done."))
    (question,) = await go_on(second, plan_id, "done")
    assert "nna… for the task" in question
    assert len(question) < 700
    await second.engine.aclose()


async def test_calls_of_one_id_are_calls_of_their_own(tmp_path: Path) -> None:
    plan_id = await die(Server(tmp_path, LOOK, LOOK, SEND, hangs_at="send"))
    second = Server(tmp_path, say("All done."))
    await go_on(second, plan_id, "done", "Sent.")
    assert read(second) == [
        "call-look: look",
        "call-look -> look done",
        "call-look~2: look",
        "call-look~2 -> look done",
        "call-send: send",
        "call-send -> Sent.",
    ]
    await second.engine.aclose()


async def test_a_plan_that_was_stopped_when_its_server_died_stays_stopped(tmp_path: Path) -> None:
    first = Server(tmp_path, LOOK, hangs_at="look")
    await first.engine.open()
    plan_id = await first.engine.submit(build_plan("a"))
    await first.hung.wait()
    await first.engine.stop(plan_id)
    await first.engine.aclose()
    second = Server(tmp_path)
    await go_on(second, plan_id)
    assert (await second.engine.get(plan_id)).root.status == "stopped"
    assert second.effects == []
    await second.engine.aclose()


KILLS = os.environ.get("KILLS", "20")


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'plans.db'}"
    return request.getfixturevalue("database")


async def test_no_effect_is_lost_or_had_twice(tmp_path: Path, address: str) -> None:
    arguments = [str(tmp_path), KILLS, "7", address]
    command = [sys.executable, "-m", "tests.extensions.planner.kills", *arguments]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{KILLS}\n", "")
    effects = count_effects(tmp_path)
    assert {name for name, times in effects.items() if times > 1 and "look" not in name} == set()
    log = build_log(address)
    plans = await log.list_plans(PlanQuery(limit=10_000))
    assert all(plan.is_over for plan in plans)
    assert len(effects) == len(plans) * TASKS * len(CALLS) > 0
    await log.aclose()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_POLL", "_RECOVERY", "_RESTART"):
        monkeypatch.setattr(f"copilot_runtime.extensions.planner.engine.{name}", 0.02)


class Clerk(Agent):
    """Thinks until it may go on, and pays; with a tool of its own unless it is `replayable`."""

    def __init__(self, tool: Action, *, replayable: bool) -> None:
        self.is_replayable = replayable
        self.model = ScriptedAdapter(call("pay", {}), say("Paid."))
        self.is_thinking, self.may_go_on, self.has_ended = (asyncio.Event() for _ in range(3))
        self._tool = tool

    async def run(self, run: RunInput) -> Events:
        self.is_thinking.set()
        await self.may_go_on.wait()
        if not self.is_replayable:
            run = replace(run, actions=[self._tool])
        try:
            async with aclosing(DirectAgent(self.model).run(run)) as events:
                async for event in events:
                    yield event
        finally:
            self.has_ended.set()


class CutServer:
    """An engine whose one assistant is a clerk."""

    def __init__(self, name: str, url: str, payments: list[str], *, replayable: bool) -> None:
        @action
        async def pay() -> str:
            payments.append(name)
            return "paid"

        self.clerk = Clerk(pay, replayable=replayable)
        run = RunInput(thread_id="t", run_id="r", messages=[], actions=[pay])
        crew = Crew(opaque=frozenset() if replayable else frozenset("a"))
        self.engine = PlanEngine(
            PostgresPlanLog(url, lease=0.4),
            crew,
            AgentWorker(always({"writer": self.clerk}), always(run)),
            crew,
        )


@in_one_test("replayable", [True, False])
@in_one_test("failure", ["cut", "hold"])
async def test_a_task_that_another_server_took_over_has_its_effect_once(
    database: str, failure: str, replayable: bool
) -> None:
    payments: list[str] = []
    async with join_wire(database) as wire:
        one = CutServer("one", wire.url, payments, replayable=replayable)
        other = CutServer("other", database, payments, replayable=replayable)
        await one.engine.open()
        plan_id = await one.engine.submit(build_plan("a"))
        await one.clerk.is_thinking.wait()
        await other.engine.open()
        other.clerk.may_go_on.set()
        getattr(wire, failure)()
        async for entry in other.engine.follow(plan_id):
            if isinstance(entry, PlanEntry) and isinstance(entry.event, QuestionAsked):
                await other.engine.answer(plan_id, entry.event.question_id, "retry")
        one.clerk.may_go_on.set()  # it does not know yet that its plan is over
        await wait_until(lambda: bool(one.clerk.model.requests))
        if failure == "cut":
            await wire.join()
        wire.release()
        await one.clerk.has_ended.wait()
        assert payments == ["other"]
        await one.engine.aclose()
        await other.engine.aclose()
