"""Roles of a plan that follow a script: tests say what each task does."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from copilot_runtime.adapters.embeddings.hashing import HashingEmbedder
from copilot_runtime.agents.registry import coerce_agent
from copilot_runtime.api import Action, Agent, RunInput
from copilot_runtime.api.events import Events
from copilot_runtime.extensions.planner.agent import PlannerAgent
from copilot_runtime.extensions.planner.election import Candidate, SimilarityElector
from copilot_runtime.extensions.planner.engine import PlanEngine
from copilot_runtime.extensions.planner.events import PlanCreated
from copilot_runtime.extensions.planner.log import MemoryPlanLog, PlanLog
from copilot_runtime.extensions.planner.plan import Plan, TaskState
from copilot_runtime.extensions.planner.roles import Assignment, TaskContext, TaskResult, Verdict
from copilot_runtime.extensions.planner.supervisor import ModelSupervisor
from copilot_runtime.extensions.planner.tasks import PlanLimits, parse_tasks
from copilot_runtime.extensions.planner.worker import AgentWorker, PlanRequests
from copilot_runtime.testing import ScriptedAdapter, call

T = TypeVar("T")

Work = Callable[[TaskState, TaskContext], Awaitable[str]]


def always(value: T) -> Callable[[Plan], Awaitable[T]]:
    """Return a function that returns the same for every plan."""

    async def find(plan: Plan) -> T:
        return value

    return find


class Crew:
    """Elects, works, evaluates and summarizes as it is given; notes who did what."""

    def __init__(
        self,
        works: Mapping[str, Work] | None = None,
        verdicts: Mapping[str, list[Verdict]] | None = None,
        *,
        opaque: frozenset[str] = frozenset(),
    ) -> None:
        self.works = works or {}
        self.verdicts = {name: [*of] for name, of in (verdicts or {}).items()}
        self.opaque = opaque
        self.worked: list[str] = []
        self.at_once = 0
        self.most_at_once = 0

    async def elect(self, state: TaskState, plan: Plan) -> Assignment:
        return Assignment("writer", 0.9, state.task.name in self.opaque)

    async def work(self, state: TaskState, context: TaskContext) -> TaskResult:
        self.worked.append(state.task.name)
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            await asyncio.sleep(0)
            if (work := self.works.get(state.task.name)) is not None:
                return TaskResult(await work(state, context))
            return TaskResult(f"<{state.task.name}>")
        finally:
            self.at_once -= 1

    async def evaluate(self, state: TaskState, context: TaskContext) -> Verdict:
        verdicts = self.verdicts.get(state.task.name)
        return verdicts.pop(0) if verdicts else Verdict(passed=True)

    async def summarize(self, state: TaskState, context: TaskContext) -> TaskResult:
        return TaskResult(" ".join(child.output or "-" for child in state.children))


def build_engine(crew: Crew, log: PlanLog | None = None, **options: Any) -> PlanEngine:
    """Return an engine whose roles are all those of a crew."""
    return PlanEngine(log or MemoryPlanLog(), crew, crew, crew, **options)


def build_plan(*tasks: Any, limits: PlanLimits | None = None, **fields: Any) -> PlanCreated:
    """Return a plan of tasks: a name, or JSON."""
    limits = limits or PlanLimits()
    decoded = [
        {"name": task, "purpose": f"Do {task}."}
        if isinstance(task, str)
        else {"purpose": f"Do {task['name']}.", **task}
        for task in tasks
    ]
    return PlanCreated(
        request="Do it.", tasks=parse_tasks(decoded, limits), limits=limits, **fields
    )


async def finish(engine: PlanEngine, created: PlanCreated) -> Plan:
    """Carry out a plan and return it as it is at its end."""
    plan_id = await engine.submit(created)
    async for _ in engine.follow(plan_id):
        pass
    return await engine.get(plan_id)


def describe(plan: Plan) -> dict[str, str]:
    """Return what became of each task, by name."""
    return {state.task.name: state.status for state in plan.tasks.values()}


async def wait_until(is_so: Callable[[], bool]) -> None:
    """Let others work until something is so."""
    while not is_so():  # noqa: ASYNC110  # the background has no event
        await asyncio.sleep(0)


def build_planner(
    agents: Mapping[str, Any], *plan: Any, log: PlanLog | None = None, **options: Any
) -> PlannerAgent:
    """Return a planner whose model answers with `plan`, and whose tasks `agents` do."""

    async def list_actions(run: RunInput) -> Sequence[Action]:
        return run.actions

    workers = {name: coerce_agent(name, agent) for name, agent in agents.items()}
    candidates = [
        Candidate(name=name, description=name, is_opaque=not agent.is_replayable)
        for name, agent in workers.items()
    ]
    requests = PlanRequests(list_actions)
    engine = PlanEngine(
        log or MemoryPlanLog(),
        SimilarityElector(always(candidates), HashingEmbedder(), floor=-1),
        AgentWorker(always(workers), requests.get),
        ModelSupervisor(ScriptedAdapter(), summary="join"),
    )
    return PlannerAgent(ScriptedAdapter(*plan), engine, requests, **options)


def write_plan(*tasks: str) -> Any:
    return call("create_plan", {"tasks": [{"name": task, "purpose": task} for task in tasks]})


class ScriptedAgent(Agent):
    """Says the same each time, as soon as it may."""

    is_replayable = True

    def __init__(self, answer: Sequence[Any]) -> None:
        self.answer = answer
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def run(self, run: RunInput) -> Events:
        self.is_asked.set()
        await self.may_answer.wait()
        for event in self.answer:
            yield event
