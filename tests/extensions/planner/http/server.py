"""A server with a planner whose roles follow a script, and plans in it."""

import asyncio
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from starlette.requests import HTTPConnection
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.adapters.scripted import ScriptedAdapter
from copilot_runtime.api import Action, RunInput
from copilot_runtime.extensions.planner.agent import PlannerAgent
from copilot_runtime.extensions.planner.engine import PlanEngine
from copilot_runtime.extensions.planner.log import PlanLog
from copilot_runtime.extensions.planner.plan import TaskState
from copilot_runtime.extensions.planner.roles import TaskContext
from copilot_runtime.extensions.planner.worker import PlanRequests
from tests.extensions.planner.crew import Crew, build_engine, build_plan

LOCAL = "http://127.0.0.1:8000"
ELSEWHERE = "http://app.test"


def wrap_engine(engine: PlanEngine) -> PlannerAgent:
    """Return a planner that makes no plans itself."""

    async def list_actions(run: RunInput) -> Sequence[Action]:
        return run.actions

    return PlannerAgent(ScriptedAdapter(), engine, PlanRequests(list_actions))


async def sign_in(connection: HTTPConnection) -> str | None:
    """Return the user that a test names in a header."""
    return connection.headers.get("x-user")


async def look_up(state: TaskState, context: TaskContext) -> str:
    """Call a tool that reads, and write about it."""

    async def run() -> str:
        return "[12, 30]"

    await context.call_tool("c1", "find_fares", '{"route":"Oslo"}', run, is_idempotent=True)
    await context.add_usage(120, 0.002)
    context.emit_text("The fares are ")
    context.emit_text("12 and 30.")
    await asyncio.sleep(0)
    return "The fares are 12 and 30."


class Served:
    """A running server, its client and its engine."""

    def __init__(self, client: TestClient, engine: PlanEngine, runtime: CopilotRuntime) -> None:
        self.client = client
        self.engine = engine
        self.runtime = runtime

    def submit(self, *tasks: Any, **fields: Any) -> str:
        """Have a plan carried out, and return its id."""
        assert self.client.portal is not None
        return self.client.portal.call(self.engine.submit, build_plan(*tasks, **fields))

    def wait(self, plan_id: str, status: str, headers: Mapping[str, str] | None = None) -> Any:
        """Return a plan once it has a status."""
        assert self.client.portal is not None
        self.client.portal.call(_wait, self.engine, plan_id, status)
        return self.client.get(f"/graphql/plans/{plan_id}", headers=headers).json()

    async def wait_for_work(self, plan_id: str, times: int) -> None:
        """Return once the first task of a plan has begun so many times, and used a model."""
        async for _ in self.engine.follow(plan_id):
            state = (await self.engine.get(plan_id)).tasks["1"]
            if state.attempts == times <= state.tokens:
                return


async def _wait(engine: PlanEngine, plan_id: str, status: str) -> None:
    if (await engine.get(plan_id)).status == status:
        return
    async for _ in engine.follow(plan_id):
        if (await engine.get(plan_id)).status == status:
            return


@contextmanager
def serve(
    crew: Crew | None = None,
    *,
    log: PlanLog | None = None,
    base_url: str = LOCAL,
    **options: Any,
) -> Generator[Served, None, None]:
    """Serve a runtime with a planner, and yield it."""
    engine = build_engine(crew or Crew({"fares": look_up}), log)
    settings = Settings(threads="memory", **options.pop("settings", {}))
    runtime = CopilotRuntime(agents={"planner": wrap_engine(engine)}, settings=settings, **options)
    with TestClient(runtime.app(), base_url=base_url) as client:
        yield Served(client, engine, runtime)
