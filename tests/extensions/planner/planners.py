"""Planners whose model follows a script, and agents that do their tasks."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from copilot_runtime.adapters.embeddings.hashing import HashingEmbedder
from copilot_runtime.agents.coerce import coerce_agent
from copilot_runtime.api import Action, Agent, RunInput
from copilot_runtime.api.events import Events
from copilot_runtime.extensions.planner.agent import PlannerAgent
from copilot_runtime.extensions.planner.election import Candidate, SimilarityElector
from copilot_runtime.extensions.planner.engine import PlanEngine
from copilot_runtime.extensions.planner.log import MemoryPlanLog, PlanLog
from copilot_runtime.extensions.planner.requests import PlanRequests
from copilot_runtime.extensions.planner.supervisor import ModelSupervisor
from copilot_runtime.extensions.planner.worker import AgentWorker
from copilot_runtime.testing import ScriptedAdapter, call
from tests.extensions.planner.crew import always


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
