"""Builds the parts of a runtime: what a program gave, or else what its settings say."""

import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from copilot_runtime import __version__
from copilot_runtime.actions.mcp.source import AllowRule, McpAllowlist, McpServer
from copilot_runtime.actions.sources import ActionList
from copilot_runtime.adapters.parameters import (
    ParametersLike,
    merge_parameters,
    parse_parameters,
)
from copilot_runtime.adapters.pricing import load_prices_now
from copilot_runtime.agents.coerce import AgentsLike, coerce_agents
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.agents.instructions import Instructions
from copilot_runtime.agents.registry import AgentRegistry, build_duplicate_error
from copilot_runtime.bus import BUSES
from copilot_runtime.bus.carrier import Carrier
from copilot_runtime.bus.carriers.unix import UnixCarrier
from copilot_runtime.config.settings import Settings, has_transcription
from copilot_runtime.duck_typing import complete
from copilot_runtime.errors import ConfigurationFailed, MissingPackage
from copilot_runtime.events import RunFailed, RunFinished, RunStarted
from copilot_runtime.generative_ui.options import (
    A2ui,
    GenerativeUi,
    McpApps,
    OpenGenerativeUi,
)
from copilot_runtime.generative_ui.parse import (
    check_agents,
    parse_a2ui,
    parse_mcp_apps,
    parse_open_generative_ui,
)
from copilot_runtime.generative_ui.settings import (
    build_a2ui,
    build_mcp_apps,
    build_open_generative_ui,
)
from copilot_runtime.interfaces import (
    DEFAULT_AGENT,
    ActionSource,
    Adapter,
    Agent,
    Agents,
    Bus,
    Caller,
    Checkpoints,
    Parameters,
    RunInput,
    SelectNames,
)
from copilot_runtime.jsonvalue import JsonObject
from copilot_runtime.registry import Registry
from copilot_runtime.runtime.audit import RunAudit
from copilot_runtime.runtime.run import RunListener
from copilot_runtime.runtime.thread_changes import ThreadChanges
from copilot_runtime.telemetry.build import TelemetryOptions, build_telemetry
from copilot_runtime.telemetry.telemetry import Telemetry
from copilot_runtime.threads.store import ThreadStore
from copilot_runtime.threads.url import build_store
from copilot_runtime.transports.auth import Authenticator
from copilot_runtime.transports.request_audit import RequestAudit
from copilot_runtime.transports.transport import Services, TransportLike

if TYPE_CHECKING:
    import httpx

    from copilot_runtime.actions.catalog import ToolCatalog
    from copilot_runtime.adapters.transcription import Transcriber
    from copilot_runtime.agents.assistant.agents import AssistantAgents
    from copilot_runtime.agents.assistant.folder import AssistantFolder
    from copilot_runtime.agents.remote import RemoteEndpoint
    from copilot_runtime.knowledge import Knowledge
    from copilot_runtime.knowledge.events import ResourceEvents
    from copilot_runtime.knowledge.events.publisher import EventPublisher
    from copilot_runtime.security.audit.log import AuditLog
    from copilot_runtime.security.authentication.chain import SchemeChain
    from copilot_runtime.security.limits.counters import Counters
    from copilot_runtime.security.limits.limiter import Limiter
    from copilot_runtime.transports.analyst.access import AnalystAccess
    from copilot_runtime.transports.events.access import EventAccess
    from copilot_runtime.transports.grpc.server import GrpcServer
    from copilot_runtime.transports.plans.access import PlanAccess
    from copilot_runtime.transports.traces.access import TraceAccess

logger = logging.getLogger(__name__)

_ASSISTANT, _TOOL = "common.Assistant", "tool.ToolFunction"
"""The types of resources that assistants and tools of files are."""

_MOST_EVENTS_IN_MEMORY = 10_000


def build_thread_store(threads: ThreadStore | str | None, settings: Settings) -> ThreadStore:
    """Return the store of an argument: itself, or an address; else that of the settings."""
    if threads is None or isinstance(threads, str):
        threads = build_store(settings.threads if threads is None else threads)
    return complete(ThreadStore, threads)


def build_generative_ui(
    settings: Settings,
    a2ui: "A2ui | Mapping[str, Any] | bool | None",
    mcp_apps: "McpApps | Sequence[McpServer] | Mapping[str, Any] | None",
    open_generative_ui: "OpenGenerativeUi | Mapping[str, Any] | bool | None",
    http_client: "httpx.AsyncClient | None",
) -> GenerativeUi:
    """Return what was given, and for the rest what the settings say.

    Raises `ConfigurationFailed` for what cannot be used.
    """
    return GenerativeUi(
        a2ui=build_a2ui(settings.a2ui) if a2ui is None else parse_a2ui(a2ui),
        mcp_apps=build_mcp_apps(settings.mcp_apps, http_client)
        if mcp_apps is None
        else parse_mcp_apps(mcp_apps),
        open_generative_ui=build_open_generative_ui(settings.open_generative_ui)
        if open_generative_ui is None
        else parse_open_generative_ui(open_generative_ui),
    )


def check_agent_names(
    options: GenerativeUi, agents: Agents, endpoints: "Sequence[RemoteEndpoint]"
) -> None:
    """Raise `UnknownName` for options for an agent that is not there, where all are known."""
    if not callable(agents) and not endpoints:
        check_agents(options, [*agents, DEFAULT_AGENT])


def build_runtime_telemetry(settings: Settings) -> Telemetry:
    """Return what takes note of runs, as the settings say."""
    names = {field.name for field in fields(TelemetryOptions)}
    options = settings.telemetry.model_dump(include=names - {"enabled_via"})
    return build_telemetry(
        TelemetryOptions(
            **options,
            environment=settings.deployment,
            version=__version__,
            enabled_via=settings.telemetry.enabled_via,
        )
    )


def build_knowledge(settings: Settings) -> "Knowledge | None":
    """Return the knowledge of the settings, if they name a storage or sources."""
    if not settings.knowledge.address:
        return None
    from copilot_runtime.knowledge import Knowledge

    return Knowledge(settings=settings.knowledge)


def build_tools(settings: Settings, knowledge: "Knowledge | None") -> "list[ToolCatalog]":
    """Return the tools of the settings, if they name a file. Raises for a mistake in it."""
    if not settings.tools:
        return []
    from copilot_runtime.actions.catalog import ToolCatalog

    catalog = ToolCatalog(
        settings.tools,
        read_resources=None if knowledge is None else knowledge.read_texts,
        select_names=select_by_policy(knowledge, _TOOL),
    )
    catalog.load()
    if knowledge is not None:
        keep_as_resources(catalog, _TOOL, "tools", knowledge)
    return [catalog]


def select_by_policy(knowledge: "Knowledge | None", type: str) -> SelectNames | None:
    """Return what says which resources of a type a user may use: those that they may read."""
    return None if knowledge is None else partial(knowledge.select_names, type)


def keep_as_resources(
    files: "ToolCatalog | AssistantFolder", type: str, origin: str, knowledge: "Knowledge"
) -> None:
    """Keep what files define as resources, as the files change."""

    def describe() -> Mapping[str, JsonObject]:
        definitions = files.definitions
        return {name: one.describe_resource() for name, one in definitions.items()}

    files.on_change = knowledge.mirror(type, origin, describe).update


def find_catalogs(sources: Sequence[ActionSource]) -> "Sequence[ToolCatalog]":
    """Return those sources of actions that are tools which an operator wrote."""
    others = [source for source in sources if not isinstance(source, ActionList)]
    if not others:
        return ()
    from copilot_runtime.actions.catalog import ToolCatalog

    return [source for source in others if isinstance(source, ToolCatalog)]


def check_no_model(
    settings: Settings, instructions: Instructions | None, parameters: ParametersLike | None
) -> None:
    """Raise `ConfigurationFailed` for what is meant for a model that is not there."""
    arguments = {"instructions": instructions, "parameters": parameters}
    if names := [name for name, value in arguments.items() if value is not None]:
        raise ConfigurationFailed(
            f"There are {' and '.join(names)}, but no adapter: they are for the plain chat.",
            hint="Give agents their own, as in DirectAgent(adapter, instructions=...).",
        )
    if settings.instructions:
        logger.warning("The setting instructions is for the plain chat, and there is no adapter.")


def merge_default_parameters(settings: Settings, parameters: ParametersLike | None) -> Parameters:
    """Return the parameters of an argument, and for the rest those of the settings."""
    defaults = Parameters(**settings.parameters.model_dump())
    return merge_parameters(defaults, parse_parameters(parameters))


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
    if publisher is not None and _plans(agent):
        from copilot_runtime.agents.planner.publish import PlanEvents

        agent.engine.listen(PlanEvents(publisher).feed)


def build_assistants(
    settings: Settings, adapter: Adapter, knowledge: "Knowledge | None"
) -> "AssistantAgents | None":
    """Return the assistants of a folder, if the settings name one.

    Raises `ConfigurationFailed` for files with mistakes.
    """
    if not settings.assistants.folder:
        return None
    from copilot_runtime.agents.assistant.agent import AssistantAgent
    from copilot_runtime.agents.assistant.agents import AssistantAgents
    from copilot_runtime.agents.assistant.folder import AssistantFolder

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

    Where there are no others, the model itself does them, with all tools.
    """
    from copilot_runtime.agents.planner.build import build_planner

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
    from copilot_runtime.agents.analyst.agent import AnalystAgent
    from copilot_runtime.agents.analyst.analyst import Analyst

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
    from copilot_runtime.agents.analyst.source import AnalystTools

    return [AnalystTools(found, share=settings.analyst.share_tools)]


def build_analyst_access(agents: AgentRegistry) -> "AnalystAccess | None":
    """Return what has the data of analysts, if there is one, or may be."""
    if not any(map(_has_data, agents.lasting.values())):
        return None
    from copilot_runtime.transports.analyst.access import AnalystAccess

    return AnalystAccess(agents.current)


def build_audit_log(settings: Settings) -> "AuditLog | None":
    """Return the audit log of the settings, if they name a file; it is not opened yet."""
    section = settings.audit
    if not section.file:
        return None
    from copilot_runtime.security.audit.log import AuditLog

    return AuditLog(
        section.file,
        key=section.key,
        max_bytes=section.max_bytes,
        max_files=section.max_files,
    )


def build_run_audit(settings: Settings, log: "AuditLog | None") -> RunAudit | None:
    """Return what writes down runs, if there is an audit log."""
    return None if log is None else RunAudit(log, content=settings.audit.content)


def build_request_audit(settings: Settings, log: "AuditLog | None") -> RequestAudit | None:
    """Return what writes down requests, if there is an audit log."""
    if log is None:
        return None
    return RequestAudit(log, reads=settings.audit.reads, proxies=settings.proxy.forwarders)


def build_grpc_server(
    settings: Settings,
    services: Services,
    authenticator: Authenticator,
    *,
    has_users: bool,
    limiter: "Limiter | None",
    audit: "AuditLog | None",
) -> "GrpcServer | None":
    """Return what answers calls over gRPC, if the settings name services.

    Raises `MissingPackage`, `UnknownName`, and `ConfigurationFailed` for what cannot be offered.
    """
    if not settings.grpc.services:
        return None
    try:
        from copilot_runtime.transports.grpc.server import GrpcServer
    except ImportError as error:
        raise MissingPackage("The setting grpc.services", error.name or "grpcio", "grpc") from error
    return GrpcServer(
        settings,
        services,
        authenticator=authenticator,
        telemetry=services.telemetry,
        has_users=has_users,
        limiter=limiter,
        audit=build_request_audit(settings, audit),
    )


def build_counters(settings: Settings) -> "Counters | None":
    """Return where all processes count together, if the settings name it; else each by itself.

    Raises `MissingPackage`.
    """
    if settings.limits.store == "memory":
        return None
    from copilot_runtime.security.limits.redis import RedisCounters

    return RedisCounters(settings.limits.store)


def build_limiter(settings: Settings, counters: "Counters | None") -> "Limiter | None":
    """Return what counts by the limits of the settings, if there are any.

    Raises `MissingPackage`.
    """
    from copilot_runtime.adapters.pricing import find_price
    from copilot_runtime.security.limits.limiter import Limiter

    limiter = Limiter(settings.limits, counters, price=find_price, run_seconds=settings.run_timeout)
    if limiter.counts_dollars and find_spec("genai_prices") is None:
        raise MissingPackage("A limit of dollars", "genai-prices", "prices")
    return limiter if limiter.has_limits else None


def build_schemes(settings: Settings, counters: "Counters | None") -> "SchemeChain | None":
    """Return how people and programs sign in by the settings, if they say so.

    Raises `ConfigurationFailed`.
    """
    if not settings.access.authenticate:
        return None
    from copilot_runtime.security.authentication.chain import build_chain
    from copilot_runtime.security.authentication.service_tokens import ServiceTokenScheme

    chain = build_chain(settings)
    services = chain.find_scheme(ServiceTokenScheme) if chain else None
    if counters is not None and isinstance(services, ServiceTokenScheme):
        from copilot_runtime.security.limits.redis import RedisReplays

        services.verifier.replays = RedisReplays(counters)
    return chain


def limit_plans(agents: AgentRegistry, limiter: "Limiter | None") -> None:
    """Have what the tasks of plans use counted: it is in no run of a client."""
    if limiter is None or not limiter.counts_tokens:
        return
    if limiter.counts_dollars and any(map(_plans, agents.lasting.values())):
        load_prices_now()  # plans count what they know the price of when they use it
    for agent in filter(_plans, agents.lasting.values()):
        from copilot_runtime.agents.planner.usage import PlanUsage

        engine: Any = getattr(agent, "engine", None)
        engine.listen(PlanUsage(limiter.count_soon).feed)


def build_allowlist(
    servers: Sequence[McpServer],
    allowed: AllowRule,
    settings: Settings,
    http_client: "httpx.AsyncClient | None",
) -> McpAllowlist:
    """Return the MCP servers of the program and of the settings, and which a page may name."""
    listed = [McpServer(url, http_client=http_client) for url in settings.mcp.servers]
    if not callable(allowed) and not isinstance(allowed, str):
        allowed = [*allowed, *settings.mcp.allowed]
    return McpAllowlist(allowed, [*servers, *listed])


def build_endpoints(
    urls: "Sequence[str | RemoteEndpoint]", http_client: "httpx.AsyncClient | None"
) -> "Sequence[RemoteEndpoint]":
    """Return remote endpoints of CopilotKit, which bring actions and agents."""
    if not urls:
        return []
    from copilot_runtime.agents.remote.agents import coerce_endpoints

    return coerce_endpoints(urls, http_client)


def join_endpoints(agents: Agents, endpoints: "Sequence[RemoteEndpoint]") -> Agents:
    """Return agents with those of remote endpoints."""
    if not endpoints:
        return agents
    from copilot_runtime.agents.remote.agents import AgentResolver

    return AgentResolver(agents, endpoints)


def list_transports(
    transports: Sequence[TransportLike] | None, settings: Settings
) -> Sequence[TransportLike]:
    """Return those given, else those named in the settings, after those for other programs."""
    chosen = settings.transports if transports is None else transports
    programs = {
        "a2a": settings.serve_a2a,
        "mcp": settings.serve_mcp,
        "remote_endpoint": settings.serve_remote,
    }
    return [*dict.fromkeys([*(name for name, serves in programs.items() if serves), *chosen])]


def build_plan_access(agents: AgentRegistry, traces: "TraceAccess") -> "PlanAccess | None":
    """Return what has the plans of agents, if one of them plans, or may."""
    if not (agents.is_open or any(map(_plans, agents.lasting.values()))):
        return None
    from copilot_runtime.transports.plans.access import PlanAccess

    return PlanAccess(agents, traces.allows)


def build_events(
    settings: Settings, knowledge: "Knowledge | None", agents: AgentsLike | None = None
) -> "ResourceEvents | None":
    """Return what publishes events, if they are kept: that of knowledge, if there is some."""
    store = settings.events.store
    programs = agents.values() if isinstance(agents, Mapping) else ()
    plans = bool(settings.planner.name) or any(map(_plans, programs))
    store = store or ("memory" if knowledge or plans else "none")
    if store == "none":
        return None
    from copilot_runtime.knowledge.events import MemoryEventLog, ResourceEvents, SqliteEventLog

    events = ResourceEvents() if knowledge is None else knowledge.events
    if events.log is None:
        kind, _, path = store.partition(":")
        limits = settings.events
        events.log = (
            SqliteEventLog(path, max_events=limits.max_events, max_bytes=limits.max_bytes)
            if kind == "sqlite"
            else MemoryEventLog(
                min(limits.max_events, _MOST_EVENTS_IN_MEMORY), max_bytes=limits.max_bytes
            )
        )
    return events


def build_publisher(events: "ResourceEvents | None") -> "EventPublisher | None":
    """Return what publishes events for code that does not wait, if they are kept."""
    if events is None:
        return None
    from copilot_runtime.knowledge.events.publisher import EventPublisher

    return EventPublisher(events)


def build_run_listener(publisher: "EventPublisher | None", changes: ThreadChanges) -> RunListener:
    """Return what tells that runs begin and end: readers of threads, and events if any are kept."""
    if publisher is None:
        return changes.note_run
    from copilot_runtime.runtime.run_events import RunEvents

    publish = RunEvents(publisher)

    def tell(run: RunInput, event: RunStarted | RunFinished | RunFailed) -> None:
        publish(run, event)
        changes.note_run(run, event)

    return tell


def build_event_access(
    settings: Settings, events: "ResourceEvents | None", knowledge: "Knowledge | None"
) -> "EventAccess | None":
    """Return what has events for those who may see them, if any are kept."""
    if events is None:
        return None
    from copilot_runtime.knowledge.events import MemoryEventLog
    from copilot_runtime.knowledge.policies import OWNERS_ONLY
    from copilot_runtime.transports.events.access import EventAccess
    from copilot_runtime.transports.events.quota import PublishQuota

    max_events = settings.events.max_events
    if isinstance(events.log, MemoryEventLog):
        max_events = min(max_events, _MOST_EVENTS_IN_MEMORY)
    return EventAccess(
        events,
        OWNERS_ONLY.access if knowledge is None else knowledge.access,
        PublishQuota(max_events, settings.events.max_bytes),
    )


def _plans(agent: object) -> bool:
    return bool(getattr(agent, "has_plans", False))


def _has_data(agent: object) -> bool:
    return bool(getattr(agent, "has_data", False))


def list_side_endpoints(services: Services) -> Sequence[str]:
    """Return the names of what is answered beside the transports."""
    parts = {
        "access": services.access is not None,
        "analyst": services.analyst is not None,
        "events": services.events is not None,
        "knowledge": services.knowledge is not None,
        "plans": services.plans is not None,
        "thread_push": services.thread_push is not None and services.thread_push.offers_sockets,
        "traces": True,
        "otlp": services.settings.telemetry.receives,
    }
    return [name for name, serves in parts.items() if serves]


def build_bus(settings: Settings) -> Bus:
    """Return the bus of the settings, with their limits."""
    make = Registry("copilot_runtime.bus", BUSES, noun="bus")[settings.bus]
    return make(
        max_events=settings.max_events_per_run,
        max_bytes=settings.max_bytes_per_run,
        ttl=settings.log_ttl,
    )


def build_carrier(settings: Settings, threads: ThreadStore) -> Carrier | None:
    """Return the way to the other processes that share a store; None if nobody can share it."""
    if settings.carrier == "none":
        return None
    if settings.carrier != "auto":
        from copilot_runtime.bus.carriers.redis import RedisCarrier

        return RedisCarrier(settings.carrier)
    if threads.shared_file is not None and hasattr(socket, "AF_UNIX"):
        return UnixCarrier(threads.shared_file)
    if threads.shared_url:
        from copilot_runtime.bus.carriers.postgres import PostgresCarrier

        return PostgresCarrier(threads.shared_url)
    return None


def build_transcriber(
    settings: Settings, http_client: "httpx.AsyncClient | None"
) -> "Transcriber | None":
    """Return OpenAI's, or one like it, if there is a key or the settings name one."""
    if not has_transcription(settings):
        return None
    from copilot_runtime.adapters.transcription import OpenAITranscriber  # brings aiohttp along

    chosen = settings.transcription
    return OpenAITranscriber(
        chosen.model or "whisper-1",
        base_url=chosen.base_url,
        language=chosen.language,
        http_client=http_client,
    )


def build_empty_adapter() -> Adapter:
    """Return the adapter of a runtime that has no model."""
    from copilot_runtime.adapters.empty import EmptyAdapter  # only for those who have no model

    return EmptyAdapter()
