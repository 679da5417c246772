"""An agent that plans and delegates, and the plans of all agents that do."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.agents.registry import has_plans
from copilot_runtime.api.agent import Agent
from copilot_runtime.api.budget import Budget
from copilot_runtime.api.identity import Caller, get_current_identity
from copilot_runtime.api.retrieval import Retriever
from copilot_runtime.app.extension import Contribution, Core, Extension, PrivateState
from copilot_runtime.base.errors import MissingPackage
from copilot_runtime.config.settings import CoreSettings
from copilot_runtime.extensions.access.limits.limiter import Limiter
from copilot_runtime.extensions.events.publisher import EventPublisher
from copilot_runtime.extensions.knowledge.extension import find_knowledge
from copilot_runtime.extensions.settings import narrow_settings
from copilot_runtime.extensions.tracing.http.access import TraceAccess
from copilot_runtime.threads.store import ThreadKey
from copilot_runtime.transports.transport import Services

if TYPE_CHECKING:
    from copilot_runtime.extensions.planner.http.access import PlanAccess


class PlannerExtension(Extension):
    """Adds the planner of the settings, and connects the planners of the program as well."""

    name = "planner"
    requires = ("tracing", "access", "knowledge", "events", "generative_ui")

    def build(self, core: Core) -> Contribution:
        if narrow_settings(core.settings).planner.name:
            add_planner(core)
        core.agents.check_names()
        self._plans: PlanAccess | None = None
        planners = [agent for agent in core.agents.lasting.values() if has_plans(agent)]
        publish_plans(planners, core.parts.find(EventPublisher))
        limit_plans(planners, core.parts.find(Limiter))
        if not (planners or core.agents.is_open):
            return Contribution()
        from copilot_runtime.extensions.planner.http import access

        traces = core.parts.get(TraceAccess)
        self._plans = access.PlanAccess(core.agents, traces.allows, core.parts.find(Limiter))
        return Contribution(
            parts={access.PlanAccess: self._plans},
            endpoints=[_make_endpoint],
            page="/plans",
            schema="copilot_runtime.extensions.planner.graphql",
        )

    async def forget_thread(self, thread: ThreadKey) -> None:
        if self._plans is not None:
            await self._plans.forget_thread(thread)

    def list_private_state(self, settings: CoreSettings) -> Sequence[PrivateState]:
        section = narrow_settings(settings).planner
        kind = section.store.partition(":")[0]
        is_shared = settings.threads.startswith("postgres")
        if not section.name or kind not in ("sqlite", "memory"):
            return []
        if kind == "sqlite" and not is_shared:  # workers of one machine share a file
            return []
        place = "in a file of this machine" if kind == "sqlite" else "in the memory of each process"
        hint = "Set planner.store to postgresql://..., such as the database of the threads."
        if not is_shared:
            hint = "Set planner.store to sqlite:PATH or postgresql://..."
        text = f"Plans are {place}: other servers cannot go on with them."
        return [PrivateState("plans", text, hint)]


def add_planner(core: Core) -> None:
    """Add an agent that plans. The other agents do its tasks.

    Where there are no others, or the fallback is `assistant`, the model itself does tasks, with all
    tools and what knowledge finds. Raises `MissingPackage` without the extra `knowledge`.
    """
    try:
        from copilot_runtime.extensions.planner.build import build_planner
    except ModuleNotFoundError as error:
        raise MissingPackage("The planner", error.name or "numpy", "knowledge") from error

    settings, agents = narrow_settings(core.settings), core.agents
    model = DirectAgent(
        core.adapter,
        max_turns=settings.max_turns,
        action_timeout=settings.action_timeout,
        retriever=core.parts.find(Retriever),
    )
    works = agents.is_empty or settings.planner.fallback == "assistant"
    own = {"assistant": model} if works else {}

    async def find_workers(caller: Caller) -> Mapping[str, Agent]:
        return {**own, **await agents.find_workers(caller)}

    planner = build_planner(
        settings.planner,
        core.adapter,
        find_workers,
        find_knowledge(core.parts),
        core.sources,
        max_turns=settings.max_turns,
        action_timeout=settings.action_timeout,
        telemetry=core.telemetry,
        run_timeout=settings.run_timeout,
        checkpoints=core.threads,
    )
    agents.add_planner(settings.planner.name, planner)


def publish_plans(planners: Sequence[Agent], publisher: EventPublisher | None) -> None:
    """Publish the progress of plans as events."""
    if publisher is None:
        return
    from copilot_runtime.extensions.planner.publish import PlanEventPublisher

    for agent in planners:
        _engine_of(agent).listen(PlanEventPublisher(publisher).on_entry)


def limit_plans(planners: Sequence[Agent], limiter: Limiter | None) -> None:
    """Count active plans and their token usage against the limits: no run of a client has them."""
    if limiter is None or not planners:
        return
    from copilot_runtime.extensions.planner.slots import PlanSlots, identify_owner

    def open_budget(owner: str | None) -> Budget:
        caller = get_current_identity()  # of another server's plan, only the owner is known
        identity = caller if caller.owner == owner else identify_owner(owner)
        return limiter.open_budget(identity, owner)

    for agent in planners:
        engine = _engine_of(agent)
        engine.slots = PlanSlots(limiter.hold_place)
        if limiter.has_budgets:
            engine.open_budget = open_budget


def _engine_of(agent: Any) -> Any:
    return agent.engine


def _make_endpoint(services: Services) -> object:
    from copilot_runtime.extensions.planner.http.endpoint import PlansEndpoint

    return PlansEndpoint(services)
