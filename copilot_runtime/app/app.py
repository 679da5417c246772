"""Put the pieces together: from what an operator names to one ASGI application.

Read it from top to bottom to see what there is.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from copilot_runtime.actions.sources import Source, as_sources
from copilot_runtime.adapters.parameters import ParametersLike
from copilot_runtime.agents.coerce import AgentsLike
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.agents.instructions import Instructions
from copilot_runtime.agents.title import generate_title
from copilot_runtime.agents.v1_state import track_v1_state
from copilot_runtime.api.adapter import Adapter, SupportsStream
from copilot_runtime.api.agent import DEFAULT_AGENT, Agent
from copilot_runtime.api.bus import Bus
from copilot_runtime.api.duck_typing import complete
from copilot_runtime.api.hooks import (
    AfterRequest,
    BeforeRequest,
    Hooks,
    OnError,
    OnStop,
    call_quietly,
)
from copilot_runtime.api.stage import StageFunction
from copilot_runtime.api.transcript import fold_conversation
from copilot_runtime.app.actions import build_allowlist, build_tools, find_catalogs
from copilot_runtime.app.adapters import (
    build_empty_adapter,
    build_transcriber,
    check_no_model,
    merge_default_parameters,
)
from copilot_runtime.app.agents import (
    build_agents,
    build_analyst_access,
    build_analyst_tools,
    build_endpoints,
    build_plan_access,
    join_endpoints,
    limit_plans,
)
from copilot_runtime.app.argument_checks import (
    check_actions,
    check_function,
    check_items,
    check_knowledge,
    check_list,
    check_mapping,
    check_settings,
    check_stages,
    check_store,
    describe,
)
from copilot_runtime.app.lazy_app import LazyApp, is_traced
from copilot_runtime.app.maintenance import delete_old_threads, find_threads_state, warn_of_key
from copilot_runtime.app.threads import build_bus, build_peers, build_thread_store
from copilot_runtime.app.transports import build_grpc_server, list_side_endpoints, list_transports
from copilot_runtime.base.concurrency import convert_exits
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.base.gc_tuning import tune_while_serving
from copilot_runtime.base.keyword_arguments import explain_names
from copilot_runtime.base.outages import Outage
from copilot_runtime.config.credentials import list_unused_credentials
from copilot_runtime.config.loader import load_settings
from copilot_runtime.config.settings import Settings
from copilot_runtime.event_order.verify import verify_events
from copilot_runtime.extensions.access.build import (
    build_audit_log,
    build_counters,
    build_limiter,
    build_request_audit,
    build_run_audit,
    build_schemes,
)
from copilot_runtime.extensions.access.http.report import AccessReport
from copilot_runtime.extensions.events.build import (
    build_event_access,
    build_events,
    build_publisher,
    build_run_listener,
)
from copilot_runtime.extensions.generative_ui.build import build_middleware, find_app_proxy
from copilot_runtime.extensions.generative_ui.wiring import build_generative_ui, check_agent_names
from copilot_runtime.extensions.guardrails.guardrails import from_settings
from copilot_runtime.extensions.knowledge.build import build_knowledge, connect_knowledge
from copilot_runtime.extensions.mcp.client.source import AllowRule, McpActions, McpServer
from copilot_runtime.extensions.tracing.http.access import TraceAccess
from copilot_runtime.extensions.tracing.http.metrics import MetricsEndpoint
from copilot_runtime.extensions.tracing.http.worker_metrics import WORKER_METRICS
from copilot_runtime.extensions.tracing.otlp.environment import build_exporter_environment
from copilot_runtime.extensions.tracing.wiring import (
    build_metrics_endpoint,
    build_runtime_telemetry,
)
from copilot_runtime.runtime import Runtime
from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.runtime.page_policy import PagePolicy
from copilot_runtime.runtime.prepare import HandoffPolicy
from copilot_runtime.runtime.thread_changes import ThreadChanges
from copilot_runtime.runtime.thread_policy import ThreadPolicy
from copilot_runtime.security.cors import Cors
from copilot_runtime.security.loopback import LISTENER, LoopbackGuard
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.genai import count_from_zero
from copilot_runtime.telemetry.logs import add_fallback_handler
from copilot_runtime.telemetry.telemetry import Telemetry
from copilot_runtime.threads.recorder import Recorder
from copilot_runtime.threads.store import StoredRun, ThreadKey, ThreadStore
from copilot_runtime.transports.auth import Authenticate, Authenticator
from copilot_runtime.transports.program_runs import ProgramRuns
from copilot_runtime.transports.router import Router, RouterResponse
from copilot_runtime.transports.thread_push.join_tokens import JoinTokens
from copilot_runtime.transports.thread_push.open_streams import OpenStreams
from copilot_runtime.transports.thread_push.push import ThreadPush
from copilot_runtime.transports.transport import (
    Services,
    Transport,
    TransportLike,
    build_side_endpoints,
    build_transports,
)
from copilot_runtime.transports.urls import normalize_path

if TYPE_CHECKING:
    import httpx
    from fastapi import FastAPI

    from copilot_runtime.adapters.transcription import Transcriber
    from copilot_runtime.app import asgi
    from copilot_runtime.extensions.frameworks.remote import RemoteEndpoint
    from copilot_runtime.extensions.generative_ui.options import A2ui, McpApps, OpenGenerativeUi
    from copilot_runtime.extensions.grpc.server import GrpcServer
    from copilot_runtime.extensions.knowledge import Knowledge

logger = logging.getLogger(__name__)

STATE = "copilot_runtime"
"""The attribute of the state of an application that has its runtime."""

RESOURCES = "knowledge/resources"
"""Below the URL of a runtime: where a reader opens the sources of an answer."""


_ELSEWHERE = {
    "model": "adapter=OpenAIAdapter('gpt-4o')",
    **{name: f"settings=Settings({name}=...)" for name in Settings.model_fields},
}
"""What to write for what newcomers look for among the arguments of a runtime."""


class CopilotRuntime:
    """A CopilotKit runtime: a model, actions and agents behind one URL.

    >>> runtime = CopilotRuntime(adapter=OpenAIAdapter(model="gpt-4o"), actions=[get_time])
    >>> app = runtime.app()

    It is an ASGI application itself, as `app()` is, and may be served as one.

    Wherever an object with methods is taken, one that has them without inheriting will do, and the
    functions may be async. `aclose` closes all parts.
    """

    @explain_names(_ELSEWHERE)
    def __init__(
        self,
        adapter: SupportsStream | None = None,
        *,
        instructions: Instructions | None = None,
        parameters: ParametersLike | None = None,
        actions: Source = (),
        agents: AgentsLike | None = None,
        remote_endpoints: "Sequence[str | RemoteEndpoint]" = (),
        mcp_servers: Sequence[McpServer] = (),
        mcp_allowed: AllowRule = (),
        authenticate: Authenticate | None = None,
        threads: ThreadStore | str | None = None,
        knowledge: "Knowledge | None" = None,
        a2ui: "A2ui | Mapping[str, Any] | bool | None" = None,
        mcp_apps: "McpApps | Sequence[McpServer] | Mapping[str, Any] | None" = None,
        open_generative_ui: "OpenGenerativeUi | Mapping[str, Any] | bool | None" = None,
        telemetry: Telemetry | None = None,
        transcriber: "Transcriber | None" = None,
        guardrails: Sequence[StageFunction] = (),
        stages: Sequence[StageFunction] = (),
        properties: Mapping[str, Any] | None = None,
        on_before_request: BeforeRequest | None = None,
        on_after_request: AfterRequest | None = None,
        on_error: OnError | None = None,
        on_stop: OnStop | None = None,
        bus: Bus | None = None,
        transports: Sequence[TransportLike] | None = None,
        http_client: "httpx.AsyncClient | None" = None,
        settings: Settings | None = None,
    ) -> None:
        """Put a runtime together. Opens no file and no connection.

        Parameters:

        * **adapter** - The model of the plain chat, such as `OpenAIAdapter`. Default: none; then
          only agents answer.
        * **instructions** - The system prompt of the plain chat: a text, or a function of the
          `RunInput`, sync or async, that returns one or None. It stands before what a page sends,
          is in no thread, and is sent to no page. An agent has its own, such as
          `DirectAgent(adapter, instructions=...)`. Default: the setting `instructions`.
        * **parameters** - `Parameters` of that model, or a mapping such as `{"temperature": 0.2}`,
          for what a page does not ask for. Default: each from the settings `parameters`.
        * **actions** - Functions made with `@action`, `Action` values, an `ActionSource`, or a
          function of the `RunInput` that returns such. They run on this server.
        * **agents** - Agents by the name that a request gives, or a function of the `Caller` that
          returns them. An agent of pydantic-ai, of OpenAI's Agents SDK, or a graph of LangGraph is
          wrapped; `ConfigurationFailed` for what cannot be an agent, `MissingPackage`.
        * **remote_endpoints** - URLs of CopilotKit remote endpoints, or `RemoteEndpoint` values,
          whose actions and agents are added.
        * **mcp_servers** - MCP servers whose tools are actions, beside the setting `mcp.servers`.
        * **mcp_allowed** - Which other MCP servers a page may name: origins, whole URLs and
          `McpServer` values, beside the setting `mcp.allowed`, or a function that decides about a
          URL. Default: none.
        * **authenticate** - A function of the `HTTPConnection` that returns the id of its user, to
          whom threads then belong, or None. To refuse, it raises `AuthenticationFailed` or
          Starlette's `HTTPException`. Default: nobody signs in, and threads have no owner.
        * **threads** - The store of conversations, or an address such as `sqlite:threads.db`.
          Default: the one at the setting `threads`.
        * **knowledge** - A `Knowledge`, such as `Knowledge(sources=["pages"])`. Its tools are
          actions, and questions in the plain chat are answered from it. The server brings it up to
          date when it starts. Default: that of the settings, if they name a storage or sources.
        * **a2ui** - Surfaces that pages draw from data: `A2ui` options, the mapping that the Node
          runtime takes, or True. Default: the settings `a2ui`; where nothing is set, A2UI is there
          for pages that say that they have a catalog.
        * **mcp_apps** - MCP servers whose tools have user interfaces: `McpServer` values, `McpApps`
          options, or the mapping that the Node runtime takes. Where it is set, MCP servers that a
          page names may have interfaces, too. Default: the settings `mcp_apps`.
        * **open_generative_ui** - Pages that models write, in a sandbox: True, `OpenGenerativeUi`
          options, or the mapping that the Node runtime takes. Default: the settings
          `open_generative_ui`.
        * **telemetry** - Where spans, metrics and events of runs go. Default: what the settings
          `telemetry` say.
        * **transcriber** - Turns speech into text. Default: OpenAI's, if there is a key or the
          settings name one, else none.
        * **guardrails** - Stages that refuse, around all others; those of the settings are added.
        * **stages** - Functions of `(events, run)` that return events, each around the one before.
        * **properties** - Properties of every request; those of a client come on top.
        * **on_before_request** - Gets the `RunInput` before a run starts; may return another one,
          or raise `Refused`.
        * **on_after_request** - Gets the `RunInput` and the new messages of a run that ended well.
        * **on_error** - Gets the exception and an `ErrorContext` of a run that failed.
        * **on_stop** - Gets the `RunInput` of a run that was stopped.
        * **bus** - Where the logs of runs are. Default: made by the setting `bus`, with the
          settings `max_events_per_run`, `max_bytes_per_run` (bytes) and `log_ttl` (seconds).
        * **transports** - The protocols of clients: names, `Transport` objects, or functions of
          `Services` that make one. Default: the setting `transports`.
        * **http_client** - A client of your application, which is not closed here, for what is made
          here of URLs and settings: remote endpoints (but for the streams of their agents), MCP
          servers, the transcriber and the guardrails of `cloud_base_url`. A part that you make has
          an `http_client` of its own. Default: each part makes its own connections.
        * **settings** - All numbers and switches; times in seconds, sizes in bytes. Default: from
          `copilot.yml` and the environment. What is given here counts more.

        Raises `ConfigurationFailed` for settings or parts that cannot be used, `UnknownName` for a
        name that is in no table, and `MissingPackage` for an extra that is not installed.
        """
        check_settings(settings)
        check_actions(actions)
        check_store(threads)
        check_knowledge(knowledge)
        check_mapping("properties", properties)
        check_list("remote_endpoints", remote_endpoints, "'http://localhost:9000/copilotkit'")
        check_list("mcp_servers", mcp_servers, "McpServer(url)")
        check_items("mcp_servers", mcp_servers, McpServer, "McpServer")
        check_stages("guardrails", guardrails)
        check_stages("stages", stages)
        if transports is not None:
            check_list("transports", transports, "'agui'")
        check_function("authenticate", authenticate, ("connection",))
        check_function("on_before_request", on_before_request, ("run",))
        check_function("on_after_request", on_after_request, ("run", "messages"))
        check_function("on_error", on_error, ("error", "context"))
        check_function("on_stop", on_stop, ("run",))
        self.settings = settings or load_settings()
        if adapter is None:
            check_no_model(self.settings, instructions, parameters)
        self.adapter = build_empty_adapter() if adapter is None else complete(Adapter, adapter)
        self.properties = properties or {}
        self.authenticate = authenticate
        self.audit = build_audit_log(self.settings)
        self._counters = build_counters(self.settings)
        self.limiter = build_limiter(self.settings, self._counters)
        self.schemes = build_schemes(self.settings, self._counters)
        has_users = authenticate is not None or self.schemes is not None
        self.transcriber = transcriber or build_transcriber(self.settings, http_client)
        self.threads = build_thread_store(threads, self.settings)
        self.changes = ThreadChanges(self.threads)
        self.knowledge = knowledge or build_knowledge(self.settings)
        self.telemetry = telemetry or build_runtime_telemetry(self.settings)
        self.knowledge_changes = (
            None
            if self.knowledge is None
            else connect_knowledge(self.knowledge, self.threads, self.telemetry, self.adapter)
        )
        named = build_allowlist(mcp_servers, mcp_allowed, self.settings, http_client)
        self.generative_ui = build_generative_ui(
            self.settings, a2ui, mcp_apps, open_generative_ui, http_client
        )
        endpoints = build_endpoints(remote_endpoints, http_client)
        sources = [
            *as_sources(actions),
            *(as_sources(self.knowledge.tools()) if self.knowledge else []),
            *build_tools(self.settings, self.knowledge),
            *endpoints,
            *([McpActions(named)] if named.any else []),
        ]
        self.events = build_events(self.settings, self.knowledge, agents)
        self._publisher = build_publisher(self.events)
        self._registry = build_agents(
            agents,
            self.settings,
            self.adapter,
            self.knowledge,
            sources=sources,
            telemetry=self.telemetry,
            publisher=self._publisher,
            checkpoints=self.threads,
            load_secret=self._load_shared_secret,
        )
        limit_plans(self._registry, self.limiter)
        sources += build_analyst_tools(self._registry, self.settings)
        self.agents = self._registry.current
        check_agent_names(self.generative_ui, self.agents, endpoints)
        if adapter is None and not (agents or endpoints):
            logger.warning("There is neither a model nor an agent, so nothing answers a chat.")
        files = self.knowledge.files() if self.knowledge else None
        run_audit = build_run_audit(self.settings, self.audit)
        if run_audit is not None:
            self.threads.on_dead_run = run_audit.feed_dead_run
        self.runtime = Runtime(
            DirectAgent(
                self.adapter,
                instructions=self.settings.instructions if instructions is None else instructions,
                parameters=merge_default_parameters(self.settings, parameters),
                max_turns=self.settings.max_turns,
                action_timeout=self.settings.action_timeout,
                shared_state=self.settings.shared_state,
                retriever=self.knowledge.retriever() if self.knowledge else None,
                files=files,
            ),
            join_endpoints(self.agents, endpoints),
            Recorder(
                build_bus(self.settings) if bus is None else complete(Bus, bus),
                self.threads,
                telemetry=self.telemetry,
            ),
            sources=sources,
            stages=[
                verify_events,
                named,
                track_v1_state,
                *stages,
                *guardrails,
                *from_settings(self.settings, http_client),
            ],
            hooks=Hooks(
                before_request=on_before_request,
                after_request=on_after_request,
                error=on_error,
                environment=self.settings.deployment,
                stop=on_stop,
            ),
            handoff=HandoffPolicy(
                max_turns=self.settings.max_turns,
                timeout=self.settings.action_timeout,
                hand_over=self.settings.hand_over,
                model=adapter is not None,
            ),
            pages=PagePolicy(
                instructions=self.settings.page_instructions,
                allows_model=self.settings.allows_model,
            ),
            threads=ThreadPolicy(self.threads, self.settings.history),
            files=files,
            middleware=build_middleware(
                self.generative_ui,
                named,
                self._load_secret,
                self.telemetry,
                lambda key: self.conversations.runs(key),
            ),
            run_timeout=self.settings.run_timeout,
            max_runs=self.settings.max_concurrent_runs,
            grace=self.settings.stop_timeout,
            telemetry=self.telemetry,
            listener=build_run_listener(self._publisher, self.changes),
            limiter=self.limiter,
            audit=run_audit,
        )
        self.conversations = Conversations(
            self.runtime,
            self.threads,
            when_busy=self.settings.when_busy,
            namer=self._name if self.settings.thread_names else None,
            has_users=has_users,
            secret=self.settings.secret,
            forget=self._forget,
            changes=self.changes,
        )
        self.conversations.peers = self.changes.peers = build_peers(
            self.settings, self.threads, self.conversations, self.changes, self.knowledge_changes
        )
        if self.knowledge_changes is not None:
            self.knowledge_changes.peers = self.conversations.peers
        self.program_runs = ProgramRuns(
            conversations=self.conversations,
            action_timeout=self.settings.action_timeout,
        )
        self.telemetry.observe(semconv.RUNS_OPEN, lambda: len(self.runtime.active_runs()))
        self.telemetry.observe(semconv.READERS_OPEN, self.runtime.bus.count_readers)
        self._guard = LoopbackGuard(
            self.settings.allowed_hosts,
            self.settings.named_origins,
            self.settings.proxy.forwarders,
        )
        self._guard.has_login = has_users and not self.settings.access.anonymous
        self._has_warned = False
        services = self._build_services(
            serves_chat=adapter is not None or not (agents or endpoints)
        )
        self.plans = services.plans
        self.analyst = services.analyst
        chats = build_transports(list_transports(transports, self.settings), services)
        others = build_side_endpoints(list_side_endpoints(services), services)
        self.transports = (*others, *chats)
        self.grpc = build_grpc_server(
            self.settings,
            services,
            self._authenticator(),
            has_users=has_users,
            limiter=self.limiter,
            audit=self.audit,
        )

    def app(self, path: str | None = None, *, console: bool | None = None) -> "FastAPI":
        """Return an application: every client's URL at `path`, and health at `/health/…`.

        With `console`, there are a page to try it at `/`, and the description of its routes at
        `/docs` and `/openapi.json`, also of those that you add. Its lifespan also makes Python's
        garbage collector look less often, for the whole process.
        """
        from copilot_runtime.app import asgi

        path = normalize_path(path or self.settings.path)
        router = self._router(path)
        typed = [route for part in self.transports for route in part.routes(path, router)]
        if (metrics := self._metrics_endpoint) is not None:
            typed.append(metrics.route("/metrics"))
        if path:
            typed += _root_routes(self.transports, path, router)
        app = asgi.App(
            path,
            router,
            health=self._health(),
            typed=typed,
            sockets=[f"{path}/{end}" for part in self.transports for end in part.socket_paths],
            lifespan=self._tuned_lifespan,
        )
        setattr(app.state, STATE, self)
        if console if console is not None else self.settings.console:
            app.router.routes[:0] = self._build_pages(path)
            app.add_docs()
        return app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as `app()` does, for those who name the runtime where an application is meant."""
        await self._own_app(scope, receive, send)

    @cached_property
    def _own_app(self) -> ASGIApp:
        return self.lazy_app()

    def lazy_app(self, path: str | None = None) -> ASGIApp:
        """Return the same application, which imports FastAPI only when a request needs it.

        Chats never need it, so the first answer comes sooner. If the program uses OpenTelemetry,
        this returns `app(path)`, because FastAPI makes the spans of requests.
        """
        if is_traced():
            return self.app(path)
        url = normalize_path(path or self.settings.path)
        return LazyApp(
            url, self._router(url), make=lambda: self.app(path), lifespan=self._tuned_lifespan
        )

    def mount(self, app: "FastAPI", path: str, *, dependencies: Sequence[Any] = ()) -> None:
        """Add the endpoint to an application of yours, under its dependencies.

        Both the dependencies given here and those of the application are asked before every
        request and every WebSocket; what they raise is what the client gets. What they leave in
        `request.state` is there for `authenticate`. If the application has a `CORSMiddleware`,
        that one decides which browsers may read an answer.

        Dependencies keep strangers out. To whom threads belong is what `authenticate` returns.
        """
        from copilot_runtime.app import asgi

        if not hasattr(app, "add_api_route"):
            raise ConfigurationFailed(
                f"The application is {describe(app)}, and not FastAPI.",
                hint="Write runtime.mount(app, '/graphql'). Any other ASGI framework mounts "
                "runtime.app(), and enters its lifespan.",
            )
        path = normalize_path(path)
        router = self._router(path, is_silent=lambda: asgi.has_cors(app))
        self._note_dependencies(bool(dependencies or app.router.dependencies))
        asgi.add_endpoint(
            app,
            path,
            router,
            self.transports,
            health=self._health(),
            metrics=self._metrics_endpoint,
            dependencies=dependencies,
        )
        setattr(app.state, STATE, self)
        app.router.lifespan_context = asgi.combine_lifespans(
            app.router.lifespan_context, self._lifespan
        )

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["GrpcServer | None", None]:
        """Open all parts, and close them in the end: for who serves no HTTP.

        Returns what listens for calls over gRPC, if the setting `grpc.services` names any.
        """
        async with self._lifespan(None):
            yield self.grpc

    async def aclose(self) -> None:
        """Stop all runs, then close whatever has an `aclose`. One that fails is only logged."""
        runtime = self.runtime
        await self.conversations.aclose()
        parts = (
            *(self.adapter, *self._list_agents(), *runtime.middleware),
            *(*runtime.stages, *runtime.sources, runtime.bus),
        )
        await call_quietly(getattr(self.transcriber, "aclose", None))
        for part in parts:
            await call_quietly(part.aclose)
        if self._publisher is not None:
            await call_quietly(self._publisher.aclose)
        if self.knowledge is not None:
            await call_quietly(self.knowledge.aclose)
        if self.events is not None:
            await call_quietly(self.events.aclose)
        if self.schemes is not None:
            await call_quietly(self.schemes.aclose)
        if self.limiter is not None:
            await call_quietly(self.limiter.aclose)
        if self._counters is not None:
            await call_quietly(self._counters.aclose)
        if self.audit is not None:
            await call_quietly(self.audit.aclose)
        await call_quietly(self.telemetry.aclose)

    def _build_services(self, *, serves_chat: bool) -> Services:
        """Return what transports may use of this runtime."""
        traces = TraceAccess(
            self.telemetry,
            operators=self.settings.telemetry.operators,
            has_users=self._signs_in,
            has_roles=self.schemes is not None,
            has_console=self.settings.console,
            guard=self._guard,
        )
        return Services(
            runs=self.conversations,
            program_runs=self.program_runs,
            settings=self.settings,
            transcriber=self.transcriber,
            knowledge=self.knowledge,
            traces=traces,
            plans=build_plan_access(self._registry, traces, self.limiter),
            analyst=build_analyst_access(self._registry),
            events=build_event_access(self.settings, self.events, self.knowledge),
            tools=find_catalogs(self.runtime.sources),
            generative_ui=self.generative_ui,
            app_proxy=find_app_proxy(self.runtime.middleware),
            serves_chat=serves_chat,
            telemetry=self.telemetry,
            access=AccessReport(
                self.settings,
                schemes=self.schemes,
                limiter=self.limiter,
                has_hook=self.authenticate is not None,
            ),
            thread_push=ThreadPush(
                self.conversations,
                OpenStreams(self.settings.limits.thread_streams_per_user),
                JoinTokens(self._load_secret),
                is_own_name=self._guard.is_own_name,
                url=self.settings.realtime_url,
            ),
        )

    @cached_property
    def _metrics_endpoint(self) -> MetricsEndpoint | None:
        return build_metrics_endpoint(self.settings, self.telemetry)

    def _authenticator(self) -> Authenticator:
        settings = self.settings
        return Authenticator(
            self.authenticate,
            settings.forwards,
            self.properties,
            schemes=self.schemes,
            access=settings.access,
            operators=settings.telemetry.operators,
            proxies=settings.proxy.forwarders,
        )

    def _router(self, path: str, is_silent: Callable[[], bool] = lambda: False) -> Router:
        settings = self.settings
        if self.knowledge is not None:
            self.knowledge.link = f"{settings.knowledge.link}{path}/{RESOURCES}/"
        named, credentials = settings.named_origins, settings.cors_credentials
        origins = ["*"] if "auto" in settings.cors_origins else named
        return Router(
            path,
            self.transports,
            cors=Cors(origins, credentials=credentials, is_silent=is_silent),
            pages=Cors([origin for origin in named if origin != "*"]),
            guard=self._guard,
            authenticator=self._authenticator(),
            max_body_bytes=settings.max_body_bytes,
            max_values=settings.max_values,
            read_timeout=settings.read_timeout,
            write_timeout=settings.write_timeout,
            limiter=self.limiter,
            audit=build_request_audit(settings, self.audit),
        )

    def _health(self) -> "asgi.Health":
        from copilot_runtime.app import asgi

        return asgi.Health(
            is_closing=lambda: self.runtime.is_closing,
            is_draining=lambda: self.runtime.is_draining,
            find_threads=partial(find_threads_state, self.threads, Outage(logger, "The threads")),
            knowledge=self.knowledge.status if self.knowledge else None,
            find_failing_checks=self._find_failing_checks,
        )

    def _find_failing_checks(self) -> Sequence[str]:
        agents = [
            problem for agent in self._list_agents() for problem in agent.find_failing_checks()
        ]
        peers = self.conversations.peers
        carrier = () if peers is None or peers.is_reachable else ("carrier",)
        provider = self.adapter.find_failing_checks()
        limits = () if self._counters is None else self._counters.find_failing_checks()
        parts = (*self.telemetry.find_failing_checks(), *carrier, *limits)
        return [*parts, *dict.fromkeys((*provider, *agents))]

    def _build_pages(self, path: str) -> Sequence[BaseRoute]:
        from copilot_runtime.extensions.console.pages import build_pages

        a2ui = self.generative_ui.a2ui
        return build_pages(
            path,
            suggestions=(*self.settings.knowledge.suggestions, *self.adapter.suggestions),
            has_knowledge=self.knowledge is not None,
            has_plans=self.plans is not None,
            has_data=self.analyst is not None,
            has_users=self._signs_in,
            has_traces=self.telemetry.is_recording,
            keeps_traces=getattr(self.telemetry, "store", None) is not None,
            draws_surfaces=a2ui is None or a2ui.enabled,
        )

    def _note_dependencies(self, are_there: bool) -> None:
        """Warn of dependencies that may know people, where the threads know none."""
        self._guard.has_login |= are_there
        if are_there and not self._signs_in and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "The runtime is mounted with dependencies and without authenticate: everybody whom "
                "they let in shares all threads. Give CopilotRuntime an authenticate function that "
                "returns the user whom a dependency left in request.state."
            )

    @property
    def _signs_in(self) -> bool:
        """Whether it is found out who asks."""
        return self.authenticate is not None or self.schemes is not None

    @asynccontextmanager
    async def _tuned_lifespan(self, app: Any) -> AsyncGenerator[None, None]:
        async with tune_while_serving(app), self._lifespan(app):
            yield

    @asynccontextmanager
    async def _lifespan(self, app: Any) -> AsyncGenerator[None, None]:  # noqa: ARG002  # Starlette's signature
        settings = self.settings
        add_fallback_handler(settings.log_level, settings.log_format, settings.log_debug)
        if (listener := LISTENER.get()) is not None:
            self._guard.listen(listener)
            if self.settings.telemetry.receives:
                token = self.settings.telemetry.receive_token
                self.telemetry.child_environment = build_exporter_environment(listener, token)
        self._guard.warn_of_proxies()
        for credential in list_unused_credentials(settings):
            logger.warning("%s %s", *credential)
        workers = WORKER_METRICS.get()
        if workers is not None and self._metrics_endpoint is not None:
            self._metrics_endpoint.join(workers)
        tasks: list[asyncio.Task[None]] = []
        try:
            if self.audit is not None:
                await asyncio.to_thread(self.audit.check)
            if self.schemes is not None:
                await self.schemes.open()  # before what others see, if nobody can sign in
            if self._counters is not None:
                await self._counters.open()
            self.conversations.open()
            await self.threads.open()
            if self.conversations.peers is not None:
                await self.conversations.peers.open()
            await self.telemetry.open()
            count_from_zero(self.telemetry, [DEFAULT_AGENT, *self._registry.lasting])
            if self.knowledge is not None:
                self.knowledge.start()
            for agent in self._list_agents():
                await agent.open()
            for transport in self.transports:
                await transport.open()
            tasks = [
                asyncio.create_task(
                    delete_old_threads(self.threads, settings.thread_retention, self.knowledge),
                    name="delete old threads",
                ),
                asyncio.create_task(warn_of_key(self.adapter), name="check key"),
            ]
            if self.grpc is not None:
                await self.grpc.open()
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self.grpc is not None:
                await call_quietly(self.grpc.aclose)
            for transport in self.transports:
                await call_quietly(transport.aclose)
            await self.aclose()

    def _list_agents(self) -> Sequence[Agent]:
        """Return the agents that are the same for every caller."""
        return [*self._registry.lasting.values()]

    async def _load_secret(self) -> str:
        """Return the secret of all servers of this runtime: the setting, or else the store's."""
        return self.settings.secret or await convert_exits(self.threads.secret())

    async def _load_shared_secret(self) -> str:
        """Return the secret, if servers have it that share no folder; else an empty text."""
        if self.settings.secret or self.threads.shared_url:
            return await self._load_secret()
        return ""

    async def _forget(self, thread: ThreadKey) -> None:
        """Delete the plans of a thread, and what knowledge has of it."""
        if self.plans is not None:
            await self.plans.forget_thread(thread)
        if self.knowledge is not None:
            await self.knowledge.forget_thread(thread.owner, thread.id)

    async def _name(self, runs: Sequence[StoredRun]) -> str | None:
        """Return a title that the model finds for a thread, once there is an answer in it."""
        messages = [message for run in runs[:1] for message in fold_conversation(run.events)]
        return await generate_title(self.adapter, messages)


def _root_routes(transports: Sequence[Transport], path: str, router: Router) -> Sequence[BaseRoute]:
    """Return routes for paths that clients also ask for at the root, and not below our URL."""
    found: list[BaseRoute] = []
    for name in dict.fromkeys(name for part in transports for name in part.root_paths):
        url = f"{path}/{name}"
        response = RouterResponse(router, {"path": url, "raw_path": url.encode()})
        found.append(Route(f"/{name}", response))
    return found
