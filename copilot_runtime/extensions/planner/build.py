"""Builds the planner from its settings."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from copilot_runtime.actions.sources import gather_actions
from copilot_runtime.adapters.embeddings.hashing import HashingEmbedder
from copilot_runtime.agents.registry import FindAgents
from copilot_runtime.api.action import Action, ActionSource
from copilot_runtime.api.adapter import Adapter
from copilot_runtime.api.agent import Agent
from copilot_runtime.api.run_input import Checkpoints, RunInput
from copilot_runtime.extensions.planner.agent import PlannerAgent
from copilot_runtime.extensions.planner.election import Candidate, SimilarityElector
from copilot_runtime.extensions.planner.engine import PlanEngine
from copilot_runtime.extensions.planner.log import MemoryPlanLog, PlanLog
from copilot_runtime.extensions.planner.plan import Plan
from copilot_runtime.extensions.planner.postgres import DbosPlanLog, PostgresPlanLog
from copilot_runtime.extensions.planner.settings import PlannerSettings
from copilot_runtime.extensions.planner.spans import count_plans_from_zero
from copilot_runtime.extensions.planner.sqlite import SqlitePlanLog
from copilot_runtime.extensions.planner.supervisor import ModelSupervisor
from copilot_runtime.extensions.planner.tasks import PlanLimits
from copilot_runtime.extensions.planner.worker import AgentWorker, PlanRequests
from copilot_runtime.telemetry import NO_TELEMETRY, Telemetry

if TYPE_CHECKING:
    from copilot_runtime.extensions.knowledge import Knowledge
    from copilot_runtime.extensions.planner.resources import TaskResources

_MARGIN, _MAX_MARGIN_SECONDS = 0.1, 10.0
"""Margin before the run timeout at which a run ends: a fraction of it, and its maximum."""


def build_planner(
    settings: PlannerSettings,
    adapter: Adapter,
    find_workers: FindAgents,
    knowledge: "Knowledge | None",
    sources: Sequence[ActionSource],
    *,
    max_turns: int,
    action_timeout: float,
    telemetry: Telemetry = NO_TELEMETRY,
    run_timeout: float,
    checkpoints: Checkpoints | None = None,
) -> PlannerAgent:
    """Return the planner agent.

    Args:
    settings: The settings section of the planner.
    adapter: The adapter of the model that plans, evaluates and summarizes.
    find_workers: Lists the agents that a caller may use for tasks.
    knowledge: Its embedder compares tasks with agents; without it, a hashing embedder does. It
    stores tasks as resources, from which later plans recall outputs.
    sources: The actions for plans taken over from another server.
    max_turns: Maximum rounds of tool calls in a task.
    action_timeout: Maximum seconds of a tool call.
    telemetry: Traces and counts plans.
    run_timeout: Maximum seconds of a run; its plan may take longer.
    checkpoints: Where agents store interrupted runs, in plans taken over from another server.
    """

    async def list_actions(run: RunInput) -> Sequence[Action]:
        return await gather_actions(sources, run)

    requests = PlanRequests(list_actions, checkpoints)

    async def list_workers(plan: Plan) -> Mapping[str, Agent]:
        return await find_workers((await requests.get(plan)).caller)

    async def list_candidates(plan: Plan) -> Sequence[Candidate]:
        return [
            Candidate(
                name=name,
                description=agent.profile or agent.description or name,
                is_opaque=not agent.is_replayable,
            )
            for name, agent in (await list_workers(plan)).items()
        ]

    log = build_log(settings.store)
    resources = None if knowledge is None else _build_resources(knowledge, log)
    engine = PlanEngine(
        log,
        SimilarityElector(
            list_candidates,
            HashingEmbedder() if knowledge is None else knowledge.embedder,
            floor=settings.floor,
            fallback=settings.fallback,
        ),
        AgentWorker(
            list_workers,
            requests.get,
            max_turns=max_turns,
            action_timeout=action_timeout,
            recall=None if resources is None else resources.recall,
        ),
        ModelSupervisor(adapter, summary=settings.summary),
        on_end=requests.forget,
        retention=settings.retention,
        telemetry=telemetry,
    )
    if resources is not None:
        engine.listen(resources.on_entry)
    count_plans_from_zero(telemetry, settings.name)
    return PlannerAgent(
        adapter,
        engine,
        requests,
        limits=PlanLimits(
            depth=settings.depth,
            width=settings.width,
            tasks=settings.tasks,
            rounds=settings.rounds,
            concurrency=settings.concurrency,
            tokens=settings.tokens,
            dollars=settings.dollars,
            seconds=settings.seconds,
        ),
        needs_approval=settings.needs_approval,
        evaluation=settings.evaluation,
        max_seconds=run_timeout - min(run_timeout * _MARGIN, _MAX_MARGIN_SECONDS),
        resources=resources,
    )


def _build_resources(knowledge: "Knowledge", log: PlanLog) -> "TaskResources":
    from copilot_runtime.extensions.planner.resources import TaskResources  # loads all of knowledge

    return TaskResources(knowledge, log)


def build_log(address: str) -> PlanLog:
    """Return the plan log for a store URL as in `planner.store`, without opening it."""
    kind, _, path = address.partition(":")
    match kind:
        case "memory":
            return MemoryPlanLog()
        case "sqlite":
            return SqlitePlanLog(path)
        case "dbos":
            return DbosPlanLog(path)
        case _:
            return PostgresPlanLog(address)
