"""Questions of every kind of agent are answered at another server than the one that asked."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo

from copilot_runtime import Events, RunInput, Settings
from copilot_runtime.adapters.scripted import Gate, ScriptedAdapter, say
from copilot_runtime.api.events import Interrupt
from copilot_runtime.extensions.planner.settings import PlannerSettings
from copilot_runtime.runtime.thread_policy import ThreadPolicy
from tests.agents.pages import GIVEN, answered, failure, followed_up, questions
from tests.extensions.cluster.launch_server import build_launcher
from tests.extensions.cluster.sharing import sharing
from tests.extensions.frameworks.langgraph import graphs
from tests.extensions.frameworks.test_pydantic_ai import Pieces, agent_of, called, returned
from tests.extensions.planner.crew import write_plan
from tests.wire_agui.http import Browser, text_of, user
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

Build = Callable[[Callable[[str], None]], Any]
"""Makes an agent of one server, which has an effect once it was allowed to."""


def build_asker(effect: Callable[[str], None]) -> Any:
    async def ask(run: RunInput) -> Events:
        if not run.resume:
            yield Interrupt(interrupt_id="q", value="Launch?", reason="launch", message="Launch?")
            return
        effect("A")
        for event in say("Then: A is gone"):
            yield event

    return ask


def build_careful(effect: Callable[[str], None]) -> Any:
    async def play(messages: list[ModelMessage], info: AgentInfo) -> Pieces:
        if told := returned(messages):
            yield f"Then: {told[-1]}"
        else:
            yield called("launch", '{"rocket": "A"}')

    agent = agent_of(play)

    @agent.tool_plain(requires_approval=True)
    def launch(rocket: str) -> str:
        effect(rocket)
        return f"{rocket} is gone"

    return agent


SAVER = InMemorySaver()
"""Stands for a database of checkpoints that all servers share."""


def build_graph(_: Callable[[str], None]) -> Any:
    return graphs.asker.builder.compile(checkpointer=SAVER)


@pytest.mark.parametrize(
    ("build", "payload", "then", "first_ends"),
    [
        pytest.param(build_asker, {"approved": True}, "Then: A is gone", False, id="function"),
        pytest.param(build_careful, {"approved": True}, "Then: A is gone", True, id="pydantic-ai"),
        pytest.param(build_graph, "Ada", "Hello Ada.", False, id="langgraph"),
    ],
)
async def test_an_agent_goes_on_at_another_server(
    tmp_path: Path, build: Build, payload: Any, then: str, first_ends: bool
) -> None:
    effects: list[str] = []
    threads = f"sqlite:{tmp_path / 'threads.db'}"
    settings = Settings(threads=threads, interrupt_events="outcome")
    at: dict[str, str] = {"thread": f"{build.__name__}-{first_ends}", "agent": "it"}
    servers = [browsing(agents={"it": build(effects.append)}, settings=settings) for _ in range(2)]
    async with servers[1] as second, AsyncExitStack() as stack:
        first = await stack.enter_async_context(servers[0])
        asked = (await first.run(**at)).events()
        if first_ends:
            await stack.aclose()
        resume = [answered(question, payload) for question in questions(asked)]
        has_calls = any(event["type"] == "TOOL_CALL_START" for event in asked)
        messages = followed_up(asked, "")[:2] if has_calls else [user()]
        again, twice = [
            (await second.run(**at, run=run, messages=messages, resume=resume)).events()
            for run in ("r2", "r3")
        ]

    assert text_of(again) == then
    assert failure(twice) == GIVEN
    assert effects in ([], ["A"])


async def test_of_two_answers_at_the_same_moment_at_two_servers_one_counts(
    shared: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    effects: list[str] = []
    gate, both = Gate(), asyncio.Barrier(2)
    continue_thread = ThreadPolicy.continue_thread

    async def continue_together(self: ThreadPolicy, run: RunInput, agent: Any) -> Any:
        continued = await continue_thread(self, run, agent)
        if run.resume:
            await both.wait()  # each has seen that the question is open
        return continued

    async def ask(run: RunInput) -> Events:
        if not run.resume:
            yield Interrupt(interrupt_id="q", value="Launch?", message="Launch?")
            return
        effects.append("A")
        await gate.wait()
        for event in say("A is gone"):
            yield event

    monkeypatch.setattr(ThreadPolicy, "continue_thread", continue_together)
    async with sharing(shared, None, None, options={"agents": {"it": ask}}) as servers:
        asked = (await servers[0].run(run="r1", agent="it")).events()
        resume = [answered(question, True) for question in questions(asked)]
        answers = [
            asyncio.create_task(server.run(run=run, agent="it", resume=resume))
            for server, run in zip(servers, ("r2", "r3"), strict=True)
        ]
        [refused], [counted] = await asyncio.wait(
            answers, timeout=60, return_when=asyncio.FIRST_COMPLETED
        )
        gate.release(9)
        refusal, answer = refused.result().events(), (await counted).events()

    assert (failure(refusal), refusal[-1]["code"]) == (GIVEN, "MISUSE")
    assert (text_of(answer), effects) == ("A is gone", ["A"])


@pytest.fixture(params=["sqlite", "postgres"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Return where servers have their threads and their plans."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'threads.db'}", f"sqlite:{tmp_path / 'plans.db'}"
    return (request.getfixturevalue("database"),) * 2


@asynccontextmanager
async def planning(
    stored: tuple[str, str], worker: Any, *script: Any
) -> AsyncGenerator[Browser, None]:
    """Yield a browser at a server with a planner, whose tasks the worker does."""
    threads, plans = stored
    planner = PlannerSettings(
        name="it", store=plans, fallback="worker", summary="join", needs_approval=True
    )
    settings = Settings(threads=threads, planner=planner)
    agents = {"worker": worker}
    async with browsing(ScriptedAdapter(*script), agents=agents, settings=settings) as browser:
        yield browser


async def test_a_plan_and_a_call_of_its_task_are_approved_at_another_server(
    stored: tuple[str, str],
) -> None:
    first_ends = stored[0].startswith("sqlite")  # both is slow
    launches: list[str] = []
    script = (write_plan("go"),), ()
    servers = [planning(stored, build_launcher(launches.append), *turns) for turns in script]
    async with servers[1] as second, AsyncExitStack() as stack:
        first = await stack.enter_async_context(servers[0])
        asked = (await first.run(agent="it")).events()
        if first_ends:
            await stack.aclose()
        resume = [answered(question, True) for question in questions(asked)]
        approved, twice = [
            (await second.run(agent="it", run=run, resume=resume)).events() for run in ("r2", "r3")
        ]
        resume = [answered(question, True) for question in questions(approved)]
        done = (await second.run(agent="it", run="r4", resume=resume)).events()

    assert failure(twice) == GIVEN
    assert text_of(done) == "Then: A is gone"
    assert launches == ["A"]
