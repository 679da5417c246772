"""Bounds hold for a whole run: its sub-agents, the tasks of its plan, and those side by side."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from copilot_runtime import ChatRequest, CopilotRuntime, Events, RunInput, Settings, action
from copilot_runtime.adapters.embeddings.http_embedder import Embeddings, HTTPEmbedder
from copilot_runtime.api import Adapter
from copilot_runtime.api.budget import Budget, Limit
from copilot_runtime.api.events import ActionExecutionResult, Event, Usage
from copilot_runtime.api.run_input import CURRENT_RUN, RunSlot, find_budget
from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.extensions.assistants.agent import AssistantAgent
from copilot_runtime.extensions.planner import budget
from copilot_runtime.extensions.planner.settings import PlannerSettings
from copilot_runtime.knowledge import Identifier, Knowledge, MemoryStorage, Resource
from copilot_runtime.testing import Client, ReplyFailed, call, say
from tests.extensions.assistants.test_agent import write_files
from tests.extensions.planner.crew import ScriptedAgent
from tests.extensions.planner.test_hostile import plan
from tests.in_one_test import in_one_test
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

USAGE = Usage(model="m", input_tokens=60, output_tokens=40)


class Model(Adapter):
    """Plans, and else answers with the same, once so many `branches` have sent a request.

    A request costs 60 tokens and the `output`.
    """

    def __init__(
        self,
        work: Callable[[ChatRequest], Sequence[Event]],
        *tasks: str,
        output: int = 40,
        branches: int = 1,
    ) -> None:
        self.work = work
        self.tasks = tasks
        self.usage = replace(USAGE, output_tokens=output)
        self.branches = branches
        self.plans = 0
        self.requests = 0
        self.all_sent = asyncio.Event()
        self.tokens = 0

    async def stream(self, request: ChatRequest) -> Events:
        if any(one.name == "create_plan" for one in request.actions):
            self.plans += 1
            for event in plan(*self.tasks):
                yield event
            return
        self.requests += 1
        if self.requests == self.branches:
            self.all_sent.set()
        await self.all_sent.wait()
        self.tokens += 60 + (self.usage.output_tokens or 0)
        for event in [*self.work(request), self.usage]:
            yield event


def delegate(request: ChatRequest) -> Sequence[Event]:
    other = "b" if "You are A." in str(request.messages[0]) else "a"
    return call("run_sub_agent", {"agent": other, "prompt": "Do it."})


async def ask_planner(model: Adapter, agents: Any = None, **limits: Any) -> Any:
    section = PlannerSettings(name="planner", store="memory", rounds=0, floor=-1, **limits)
    settings = Settings(threads="memory", planner=section)
    runtime = CopilotRuntime(model, agents=agents, settings=settings)
    async with Client(runtime, agent="planner") as client:
        return (await client.say("Do it all.")).state["plan"]


def build_team(model: Adapter, folder: Path) -> Any:
    files = write_files(folder, a="You are A.", b="You are B.")
    return {name: AssistantAgent(name, files, model) for name in "ab"}


async def test_tasks_side_by_side_keep_to_the_tokens_of_their_plan() -> None:
    model = Model(lambda _: say("Done."), *"abcdefghij")
    outcome = await ask_planner(model, tokens=300)

    assert (model.tokens, outcome["tokens"]) == (300, 300)
    assert outcome["reason"] == (
        "The plan has used 300 tokens; at most 300 are allowed, by its `planner.tokens`."
    )


async def test_requests_that_cost_more_than_expected_go_beyond_the_limit_once_per_task(
    tmp_path: Path,
) -> None:
    model = Model(delegate, *"abcdefghij", output=49_940, branches=10)
    limits = {"tokens": 45_000, "width": 10, "concurrency": 10}
    outcome = await ask_planner(model, build_team(model, tmp_path), **limits)

    assert model.tokens == outcome["tokens"] == 10 * 50_000
    assert outcome["reason"] == (
        "The plan has used 500000 tokens; at most 45000 are allowed, by its `planner.tokens`."
    )


async def test_sub_agents_keep_to_the_tokens_of_the_plan_that_they_work_for(
    tmp_path: Path,
) -> None:
    model = Model(delegate, *"ab")
    outcome = await ask_planner(model, build_team(model, tmp_path), tokens=1000)

    assert (model.tokens, outcome["tokens"]) == (1000, 1000)


async def test_after_an_assistant_its_limits_hold_no_more(tmp_path: Path) -> None:
    assistant = build_team(Model(lambda _: say("Done.")), tmp_path)["a"]
    budgets: list[Budget | None] = []

    async def ask_assistant(run: RunInput) -> Events:
        budgets.append(find_budget())
        async for event in assistant.run(run):
            yield event
        budgets.append(find_budget())

    section: Any = {"tokens_per_user": "500/day"}
    settings = Settings(threads="memory", limits=section)
    runtime = CopilotRuntime(agents={"it": ask_assistant}, settings=settings)
    async with Client(runtime, agent="it") as client:
        await client.say("Hi")

    assert budgets[0] is budgets[1] is not None


async def test_a_plan_has_a_bound_of_requests_for_all_tasks_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "MIN_REQUESTS", 30)
    model = Model(delegate, *"ab")
    outcome = await ask_planner(model, build_team(model, tmp_path), tasks=2)

    assert model.tokens == 29 * 100  # one of them planned
    assert outcome["reason"].startswith("The plan has sent 30 requests to models")


async def ask_at_once(
    times: int, model: Any, *, agent: str | None = None, **parts: Any
) -> set[str]:
    """Return the errors of questions at once of somebody who may use 500 tokens a day."""
    section: Any = {"tokens_per_user": "500/day"}
    settings = Settings(threads="memory", max_turns=20, limits=section)
    runtime = CopilotRuntime(model, settings=settings, **parts)
    async with Client(runtime, agent=agent) as client:
        asking = [client.another(agent=agent).say("Hi") for _ in range(times)]
        errors = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(error, ReplyFailed) for error in errors)
    return {str(error).partition(" Please")[0] for error in errors}


SPENT = {"You have used up 500 tokens in 1 day."}


@action
def look() -> str:
    """Look."""
    return "There is more."


async def test_questions_side_by_side_keep_to_the_tokens_of_their_user() -> None:
    model = Model(lambda _: call("look", {}))
    errors = await ask_at_once(10, model, actions=[look])

    assert (errors, model.tokens) == (SPENT, 500)


async def test_a_plan_of_somebody_who_has_not_signed_in_counts_for_who_asks_again() -> None:
    model = Model(lambda _: say("Done."), "a", "b", output=400_000)
    section: Any = {"tokens_per_user": "100000/day"}
    planner = PlannerSettings(name="planner", store="memory", floor=-1)
    settings = Settings(threads="memory", limits=section, planner=planner)
    async with Client(CopilotRuntime(model, settings=settings), agent="planner") as client:
        await client.say("Do it all.")
        with pytest.raises(ReplyFailed, match="used up 100,000 tokens in 1 day"):
            await client.say("And again.")

    assert model.plans == 1


async def test_titles_count_for_who_asks() -> None:
    model = Model(lambda _: say("Done."))
    section: Any = {"tokens_per_user": "500/day"}
    settings = Settings(threads="memory", thread_names=True, limits=section)
    async with Client(CopilotRuntime(model, settings=settings)) as client:
        with pytest.raises(ReplyFailed):
            while True:
                await client.another().say("Hi")

    assert model.tokens <= 600


async def test_an_agent_with_a_model_of_its_own_ends_where_it_goes_on_from_a_call() -> None:
    seen: list[Event] = []

    async def wander(run: RunInput) -> Events:
        for number in range(20):
            seen.append(USAGE)
            for event in [*call("look", {}, id=f"c{number}"), USAGE]:
                yield event
            yield ActionExecutionResult(call_id=f"c{number}", name="look", result="More.")

    errors = await ask_at_once(1, None, agent="wander", agents={"wander": wander})

    assert (errors, len(seen)) == (SPENT, 5)


class Meter(HTTPEmbedder):
    """An embedder of a provider that counts 300 tokens for each request."""

    def __init__(self) -> None:
        super().__init__("m", provider="p", service="P")

    async def _request(self, texts: Sequence[str], *, is_query: bool) -> Embeddings:
        return Embeddings([[1.0, 0.0] for _ in texts], tokens=300)


async def test_embeddings_of_a_search_count_for_who_asks() -> None:
    knowledge = Knowledge(MemoryStorage(), embedder=Meter())
    await knowledge.resources.put(Resource(Identifier("common.Note", "n"), "Look here."))
    await knowledge.update()
    model = Model(lambda _: call("look", {}))
    errors = await ask_at_once(1, model, actions=[look], knowledge=knowledge)

    assert (errors, model.tokens) == (SPENT, 200)


async def test_embeddings_that_choose_who_does_a_task_count_for_its_plan() -> None:
    model = Model(lambda _: say("Done."), "a")
    section = PlannerSettings(name="planner", store="memory", floor=-1)
    settings = Settings(threads="memory", planner=section)
    agents = {name: ScriptedAgent(say("Done.")) for name in "ab"}
    knowledge = Knowledge(MemoryStorage(), embedder=Meter())
    runtime = CopilotRuntime(model, agents=agents, settings=settings, knowledge=knowledge)
    async with Client(runtime, agent="planner") as client:
        outcome = (await client.say("Do it all.")).state["plan"]

    assert (outcome["tokens"], outcome["status"]) == (600, "finished")


class Counter(Meter):
    """Counts a token for each text, as the knowledge counts one for each of these words."""

    async def _request(self, texts: Sequence[str], *, is_query: bool) -> Embeddings:
        return Embeddings([[1.0, 0.0] for _ in texts], tokens=sum(len(t.split()) for t in texts))


async def test_what_is_embedded_crosses_a_limit_by_no_more_than_was_left_of_it() -> None:
    knowledge = Knowledge(MemoryStorage(), embedder=Counter())
    notes = [Resource(Identifier("common.Note", str(n)), "a word " * 50) for n in range(100)]
    await knowledge.resources.put_many(notes)
    tokens = Limit("tokens", 500, lambda _: LimitExceeded("Enough."))
    CURRENT_RUN.set(RunSlot(None, Budget([tokens])))
    with pytest.raises(LimitExceeded, match="Enough"):
        await knowledge.embed_resources([note.uri for note in notes])

    assert 500 <= tokens.amount < 1000


def sign_in(_connection: HTTPConnection) -> str:
    return "ann"


@in_one_test(
    ("path", "body"),
    [("memories", {"content": "Teal."}), ("knowledge/files?threadId=t&name=a.txt", "Teal.")],
)
async def test_beyond_a_limit_of_tokens_nothing_is_stored_that_no_search_would_find(
    path: str, body: Any
) -> None:
    section: Any = {"tokens_per_user": "300/day"}
    async with browsing(
        knowledge=Knowledge(MemoryStorage(), embedder=Meter()),
        settings=Settings(threads="memory", limits=section),
        authenticate=sign_in,
    ) as browser:
        first = await browser.ask("POST", "/memories", {"content": "Orange."})
        second = await browser.ask("POST", f"/{path}", body)

    assert (first.status, second.status) == (201, 429)
    assert "used up 300 tokens" in str(second.body)
