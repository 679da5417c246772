"""Builds the agents of a program, of files, of settings and of other servers."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from copilot_runtime.adapters.pricing import load_prices_now
from copilot_runtime.agents.coerce import AgentsLike, coerce_agents
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.agents.registry import AgentRegistry, build_duplicate_error
from copilot_runtime.api.action import ActionSource
from copilot_runtime.api.adapter import Adapter
from copilot_runtime.api.agent import Agent, Agents
from copilot_runtime.api.caller import Caller
from copilot_runtime.api.checkpoints import Checkpoints
from copilot_runtime.api.run_input import Parameters
from copilot_runtime.base.errors import MissingPackage
from copilot_runtime.config.settings import Settings
from copilot_runtime.extensions.knowledge.build import keep_as_resources, select_by_policy
from copilot_runtime.telemetry.telemetry import Telemetry

if TYPE_CHECKING:
    import httpx

    from copilot_runtime.extensions.access.limits.limiter import Limiter
    from copilot_runtime.extensions.analyst.http.access import AnalystAccess
    from copilot_runtime.extensions.assistants.agents import AssistantAgents
    from copilot_runtime.extensions.events.publisher import EventPublisher
    from copilot_runtime.extensions.frameworks.remote import RemoteEndpoint
    from copilot_runtime.extensions.knowledge import Knowledge
    from copilot_runtime.extensions.planner.http.access import PlanAccess
    from copilot_runtime.extensions.tracing.http.access import TraceAccess

_ASSISTANT = "common.Assistant"
"""The type of the resources that assistants are."""


def build_agents(
    agents: AgentsLike | None,
    settings: Settings,
    adapter: Adapter,
    knowledge: "Knowledge | None",
    *,
    sources: Sequence[ActionSource],
    telemetry: Telemetry,
    publisher: "EventPublisher | None" = None,
    checkpoints: Checkpoints | None = None,
    load_secret: Callable[[], Awaitable[str]] | None = None,
) -> AgentRegistry:
    """Return the agents of a program, those of the files that settings name, and the planner.

    Raises `ConfigurationFailed` for what cannot be an agent, and for two of one name.
    """
    own = coerce_agents(agents or {})
    assistants = build_assistants(settings, adapter, knowledge)
    registry = AgentRegistry(own, assistants)
    if settings.analyst.name:
        add_analyst(registry, settings, adapter, telemetry, load_secret)
    if settings.planner.name:
        add_planner(registry, settings, adapter, knowledge, sources, telemetry, checkpoints)
    names = () if assistants is None else assistants.folder.definitions
    if twice := registry.lasting.keys() & names:
        raise build_duplicate_error(min(twice))
    for agent in registry.lasting.values():
        publish_plans(agent, publisher)
    return registry


def publish_plans(agent: Any, publisher: "EventPublisher | None") -> None:
    """Have the plans of an agent told to those who follow events, if it plans."""
    if publisher is not None and has_plans(agent):
        from copilot_runtime.extensions.planner.publish import PlanEventPublisher

        agent.engine.listen(PlanEventPublisher(publisher).on_entry)


def build_assistants(
    settings: Settings, adapter: Adapter, knowledge: "Knowledge | None"
) -> "AssistantAgents | None":
    """Return the assistants of a folder, if the settings name one.

    Raises `ConfigurationFailed` for files with mistakes.
    """
    if not settings.assistants.folder:
        return None
    from copilot_runtime.extensions.assistants.agent import AssistantAgent
    from copilot_runtime.extensions.assistants.agents import AssistantAgents
    from copilot_runtime.extensions.assistants.folder import AssistantFolder

    folder = AssistantFolder(
        settings.assistants.folder, select_names=select_by_policy(knowledge, _ASSISTANT)
    )
    folder.load()
    if knowledge is not None:
        keep_as_resources(folder, _ASSISTANT, "assistants", knowledge)

    def build(name: str) -> AssistantAgent:
        return AssistantAgent(
            name,
            folder,
            adapter,
            parameters=Parameters(**settings.parameters.model_dump()),
            action_timeout=settings.action_timeout,
            retriever=knowledge.retriever() if knowledge else None,
            files=knowledge.files() if knowledge else None,
            window_rules=settings.assistants.window,
        )

    return AssistantAgents(folder, build)


def add_planner(
    registry: AgentRegistry,
    settings: Settings,
    adapter: Adapter,
    knowledge: "Knowledge | None",
    sources: Sequence[ActionSource],
    telemetry: Telemetry,
    checkpoints: Checkpoints | None,
) -> None:
    """Add an agent that plans, as the settings say. The others do its tasks.

    Where there are no others, the model itself does them, with all tools. Raises `MissingPackage`
    without the extra `knowledge`.
    """
    try:
        from copilot_runtime.extensions.planner.build import build_planner
    except ModuleNotFoundError as error:
        raise MissingPackage("The planner", error.name or "numpy", "knowledge") from error

    model = DirectAgent(
        adapter, max_turns=settings.max_turns, action_timeout=settings.action_timeout
    )
    alone = {"assistant": model} if registry.is_empty else {}

    async def find_workers(caller: Caller) -> Mapping[str, Agent]:
        return alone or await registry.find_workers(caller)

    planner = build_planner(
        settings.planner,
        adapter,
        find_workers,
        knowledge,
        sources,
        max_turns=settings.max_turns,
        action_timeout=settings.action_timeout,
        telemetry=telemetry,
        run_timeout=settings.run_timeout,
        checkpoints=checkpoints,
    )
    registry.add_planner(settings.planner.name, planner)


def add_analyst(
    registry: AgentRegistry,
    settings: Settings,
    adapter: Adapter,
    telemetry: Telemetry,
    load_secret: Callable[[], Awaitable[str]] | None,
) -> None:
    """Add an agent that answers questions about data, as the settings say."""
    from copilot_runtime.extensions.analyst.agent import AnalystAgent
    from copilot_runtime.extensions.analyst.analyst import Analyst

    kind, _, path = settings.telemetry.store.partition(":")
    analyst = Analyst(
        settings.analyst,
        operators=settings.telemetry.operators,
        trace_file=path if kind == "sqlite" else "",
        telemetry=telemetry,
    )
    registry.add_agent(
        settings.analyst.name, AnalystAgent(analyst, adapter, load_secret=load_secret)
    )


def build_analyst_tools(agents: AgentRegistry, settings: Settings) -> Sequence[ActionSource]:
    """Return the tools of the analysts there are, for other agents and for programs."""
    found = {name: one for name, one in agents.lasting.items() if _has_data(one)}
    if not found:
        return []
    from copilot_runtime.extensions.analyst.source import AnalystTools

    return [AnalystTools(found, share=settings.analyst.share_tools)]


def build_endpoints(
    urls: "Sequence[str | RemoteEndpoint]", http_client: "httpx.AsyncClient | None"
) -> "Sequence[RemoteEndpoint]":
    """Return remote endpoints of CopilotKit, which bring actions and agents."""
    if not urls:
        return []
    from copilot_runtime.extensions.frameworks.remote.agents import coerce_endpoints

    return coerce_endpoints(urls, http_client)


def join_endpoints(agents: Agents, endpoints: "Sequence[RemoteEndpoint]") -> Agents:
    """Return agents with those of remote endpoints."""
    if not endpoints:
        return agents
    from copilot_runtime.extensions.frameworks.remote.agents import AgentResolver

    return AgentResolver(agents, endpoints)


def limit_plans(agents: AgentRegistry, limiter: "Limiter | None") -> None:
    """Have plans that are at work, and what their tasks use, counted: it is in no client's run."""
    if limiter is None:
        return
    if limiter.counts_dollars and any(map(has_plans, agents.lasting.values())):
        load_prices_now()  # plans count what they know the price of when they use it
    for agent in filter(has_plans, agents.lasting.values()):
        from copilot_runtime.extensions.planner.budget import PlanUsage
        from copilot_runtime.extensions.planner.slots import PlanSlots

        engine: Any = getattr(agent, "engine", None)
        engine.slots = PlanSlots(limiter.hold_place)
        if limiter.counts_tokens:
            engine.listen(PlanUsage(limiter.count_soon).on_entry)


def build_plan_access(
    agents: AgentRegistry, traces: "TraceAccess", limiter: "Limiter | None"
) -> "PlanAccess | None":
    """Return what has the plans of agents, if one of them plans, or may."""
    if not (agents.is_open or any(map(has_plans, agents.lasting.values()))):
        return None
    from copilot_runtime.extensions.planner.http.access import PlanAccess

    return PlanAccess(agents, traces.allows, limiter)


def build_analyst_access(agents: AgentRegistry) -> "AnalystAccess | None":
    """Return what has the data of analysts, if there is one, or may be."""
    if not any(map(_has_data, agents.lasting.values())):
        return None
    from copilot_runtime.extensions.analyst.http.access import AnalystAccess

    return AnalystAccess(agents.current)


def has_plans(agent: object) -> bool:
    """Return whether an agent makes plans."""
    return bool(getattr(agent, "has_plans", False))


def _has_data(agent: object) -> bool:
    return bool(getattr(agent, "has_data", False))
