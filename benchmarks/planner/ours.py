"""Plans as the planner carries them out: `python -m benchmarks.planner.ours CASE TASKS FOLDER`."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.planner.shapes import CONCURRENCY, WIDTH, Effects, list_groups
from copilot_runtime.adapters.embeddings.hashing import HashingEmbedder
from copilot_runtime.adapters.scripted import ScriptedAdapter, call, say
from copilot_runtime.api import Action, ActionContext, Agent, ChatRequest, RunInput
from copilot_runtime.api.events import Event
from copilot_runtime.api.messages import ResultMessage, TextMessage
from copilot_runtime.base.gc_tuning import tune_while_serving
from copilot_runtime.extensions.assistants.agent import AssistantAgent
from copilot_runtime.extensions.assistants.folder import AssistantFolder
from copilot_runtime.extensions.planner.election import Candidate, SimilarityElector
from copilot_runtime.extensions.planner.engine import PlanEngine
from copilot_runtime.extensions.planner.events import PlanCreated, PlanEntry, TaskEnded
from copilot_runtime.extensions.planner.plan import Plan, TaskState
from copilot_runtime.extensions.planner.roles import Assignment, TaskContext, TaskResult, Verdict
from copilot_runtime.extensions.planner.sqlite import SqlitePlanLog
from copilot_runtime.extensions.planner.tasks import PlanLimits, Task
from copilot_runtime.extensions.planner.worker import AgentWorker, PlanRequests

TURNS = 10
"""Calls of a tool in a run of `loop`."""

_ASSISTANT = f"""---
description: Does what is to be done.
max_turns: {TURNS + 1}
---
You do what you are told.
"""
_RESULT = "action_execution_result"


class Roles:
    """One worker that does every task at once, and nobody who judges."""

    def __init__(self, effects: Effects, hangs_at: str = "") -> None:
        self._effects = effects
        self._hangs_at = hangs_at

    async def elect(self, state: TaskState, plan: Plan) -> Assignment:
        del state, plan
        return Assignment("worker")

    async def work(self, state: TaskState, context: TaskContext) -> TaskResult:
        del context
        if state.task.name == self._hangs_at:
            await asyncio.Event().wait()
        return TaskResult(self._effects.have(state.task.name))

    async def evaluate(self, state: TaskState, context: TaskContext) -> Verdict:
        raise NotImplementedError

    async def summarize(self, state: TaskState, context: TaskContext) -> TaskResult:
        del context
        return TaskResult("\n".join(child.output or "" for child in state.children))


class Model(ScriptedAdapter):
    """Calls the tool so often, then answers."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self._calls = calls

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Event, None]:
        results = sum(isinstance(message, ResultMessage) for message in request.messages)
        question = next(
            message.content
            for message in request.messages
            if isinstance(message, TextMessage) and message.role == "user"
        )
        name = question.rpartition("Do ")[2]
        answer = say(f"The outcome of {name}.")
        if results < self._calls:
            answer = call("do", {"name": name}, id=f"call-{results}")
        for event in answer:
            yield event


def build_agent(folder: Path, calls: int) -> AssistantAgent:
    """Return an assistant whose model calls the tool so often in a run."""
    files = folder / "assistants"
    files.mkdir(exist_ok=True)
    (files / "worker.agent.md").write_text(_ASSISTANT)
    assistants = AssistantFolder(files)
    assistants.load()
    return AssistantAgent("worker", assistants, Model(calls))


def build_run(effects: Effects | None) -> RunInput:
    """Return a run with the tool, which has an effect if it is given where."""

    async def do(values: Mapping[str, Any], context: ActionContext) -> str:
        del context
        return values["name"] if effects is None else effects.have(values["name"])

    parameters = {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    }
    action = Action(name="do", description="Do it.", parameters=parameters, run=do)
    question = TextMessage(id="question", role="user", content="Do x")
    return RunInput(thread_id="t", run_id="r", messages=[question], actions=[action])


def build_engine(shape: str, folder: Path, effects: Effects, hangs_at: str = "") -> PlanEngine:
    """Return an engine on a file of SQLite."""
    log = SqlitePlanLog(folder / "plans.db")
    roles = Roles(effects, hangs_at)
    if shape != "agents":
        return PlanEngine(log, roles, roles, roles)
    agent, run = build_agent(folder, 1), build_run(effects)

    async def list_actions(request: RunInput) -> Sequence[Action]:
        del request
        return run.actions

    async def list_workers(plan: Plan) -> Mapping[str, Agent]:
        del plan
        return {"worker": agent}

    async def list_candidates(plan: Plan) -> Sequence[Candidate]:
        del plan
        return [Candidate(name="worker", description=agent.description)]

    requests = PlanRequests(list_actions)
    elector = SimilarityElector(
        list_candidates,
        HashingEmbedder(),
        floor=-1,
    )
    worker = AgentWorker(list_workers, requests.get)
    return PlanEngine(log, elector, worker, roles, on_end=requests.forget)


def build_plan(shape: str, tasks: int) -> PlanCreated:
    """Return a plan of that many tasks, not counting those that are made of others."""
    groups = list_groups(tasks)
    flat = [Task(name=name, purpose=f"Do {name}") for names in groups for name in names]
    match shape:
        case "nested":
            plan = [
                Task(name=f"g{number}", purpose="Do all.", subtasks=tuple(flat[at : at + WIDTH]))
                for number, at in enumerate(range(0, tasks, WIDTH))
            ]
        case "layers":
            plan = [
                replace(task, depends_on=(flat[number - WIDTH].name,)) if number >= WIDTH else task
                for number, task in enumerate(flat)
            ]
        case _:
            plan = flat
    limits = PlanLimits(
        width=tasks, tasks=2 * tasks, concurrency=CONCURRENCY, seconds=None, depth=2
    )
    return PlanCreated(request="Do all.", tasks=tuple(plan), limits=limits)


async def carry_out(engine: PlanEngine, created: PlanCreated) -> int:
    """Carry out a plan to its end and return how many outputs it has."""
    return await follow(engine, await engine.submit(created))


async def follow(engine: PlanEngine, plan_id: str) -> int:
    """Follow a plan to its end and return how many outputs it has."""
    async for _ in engine.follow(plan_id):
        pass
    root = (await engine.get(plan_id)).root
    return len(set((root.output or "").splitlines()))


async def measure_plan(shape: str, tasks: int, folder: Path) -> Mapping[str, float]:
    """Measure plans of one shape, of at least 100 tasks together."""
    effects = Effects()
    engine = build_engine(shape, folder, effects)
    await engine.open()
    effects.check(10, await carry_out(engine, build_plan(shape, 10)))
    plans = max(1, 100 // tasks)
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(plans):
        effects.check(tasks, await carry_out(engine, build_plan(shape, tasks)))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    await engine.aclose()
    return {"cpu_ms": cpu * 1000 / tasks / plans, "wall_ms": wall * 1000 / tasks / plans}


async def measure_loop(runs: int, folder: Path) -> Mapping[str, float]:
    """Measure runs of an assistant that calls a tool some times in a row."""
    agent, run = build_agent(folder, TURNS), build_run(None)

    async def ask() -> None:
        results = [event async for event in agent.run(run) if event.type == _RESULT]
        if len(results) != TURNS:
            raise RuntimeError(f"{len(results)} of {TURNS} calls were made")

    await ask()
    cpu = time.process_time()
    for _ in range(runs):
        await ask()
    cpu = time.process_time() - cpu
    return {"cpu_ms": cpu * 1000 / runs / TURNS}


async def fill(tasks: int, folder: Path) -> None:
    """Carry out a plan but for its last task, in the middle of which the process dies."""
    engine = build_engine("flat", folder, Effects(), f"t{tasks - 1}")
    await engine.open()
    plan_id = await engine.submit(build_plan("flat", tasks))
    ends = 0
    async for entry in engine.follow(plan_id):
        ends += isinstance(entry, PlanEntry) and isinstance(entry.event, TaskEnded)
        if ends == tasks - 1:
            os._exit(0)


async def measure_restart(tasks: int, folder: Path) -> Mapping[str, float]:
    """Measure how a process takes over such a plan, and carries it out to its end."""
    effects = Effects()
    cpu, wall = time.process_time(), time.perf_counter()
    engine = build_engine("flat", folder, effects)
    await engine.log.open()
    (plan_id,) = await engine.recover()
    loaded = time.perf_counter() - wall
    outputs = await follow(engine, plan_id)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    effects.check(1, outputs - tasks + 1)
    await engine.aclose()
    return {"load_s": loaded, "end_s": wall, "cpu_s": cpu}


async def main() -> None:
    """Measure one case."""
    case, tasks, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    async with tune_while_serving(None):  # as in a server
        match case:
            case "loop":
                figures = await measure_loop(tasks, folder)
            case "fill":
                figures = await fill(tasks, folder)
            case "restart":
                figures = await measure_restart(tasks, folder)
            case _:
                figures = await measure_plan(case, tasks, folder)
    print(json.dumps(figures))


if __name__ == "__main__":
    asyncio.run(main())
