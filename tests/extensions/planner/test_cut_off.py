"""A server that cannot reach PostgreSQL does nothing for a plan that another one does again."""

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest

from copilot_runtime import action
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api import Action, Agent, RunInput
from copilot_runtime.api.events import Events
from copilot_runtime.extensions.planner.engine import PlanEngine
from copilot_runtime.extensions.planner.events import PlanEntry, QuestionAsked
from copilot_runtime.extensions.planner.postgres import PostgresPlanLog
from copilot_runtime.extensions.planner.worker import AgentWorker
from copilot_runtime.testing import ScriptedAdapter, call, say
from tests.extensions.planner.crew import Crew, always, build_plan, wait_until
from tests.extensions.planner.wire import join_wire
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


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


class Server:
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
        one = Server("one", wire.url, payments, replayable=replayable)
        other = Server("other", database, payments, replayable=replayable)
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
