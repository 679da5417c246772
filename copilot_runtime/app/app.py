"""The composition root: builds one ASGI application from an operator's parts.

Read it from top to bottom for an overview of all parts.
"""

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

from copilot_runtime.actions.sources import Source, as_sources
from copilot_runtime.adapters.parameters import ParametersLike
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.agents.instructions import Instructions
from copilot_runtime.agents.registry import AgentRegistry, AgentsLike, coerce_agents
from copilot_runtime.agents.titles_and_summaries import generate_title
from copilot_runtime.agents.v1_state import track_v1_state
from copilot_runtime.api.adapter import Adapter, SupportsStream
from copilot_runtime.api.agent import StageFunction
from copilot_runtime.api.argument_checks import complete, explain_names
from copilot_runtime.api.bus import Bus
from copilot_runtime.api.hooks import Hooks
from copilot_runtime.api.retrieval import FileReader, FileStore, Retriever
from copilot_runtime.api.transcript import fold_conversation
from copilot_runtime.app.adapters import (
    build_empty_adapter,
    check_no_model,
    merge_default_parameters,
)
from copilot_runtime.app.arguments import ELSEWHERE, check_arguments, check_hooks
from copilot_runtime.app.contributions import build_contributions
from copilot_runtime.app.extension import Core, Extension
from copilot_runtime.app.loading import list_options, load_extensions
from copilot_runtime.app.maintenance import forget_thread
from copilot_runtime.app.server import (
    AppServer,
    build_authenticator,
    build_push,
    make_thread_sockets,
)
from copilot_runtime.app.threads import build_bus, build_thread_store
from copilot_runtime.config.loader import learn_secrets, load_settings
from copilot_runtime.config.settings import CoreSettings
from copilot_runtime.event_order.verify import verify_events
from copilot_runtime.runtime import Runtime
from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.runtime.page_policy import PagePolicy
from copilot_runtime.runtime.prepare import HandoffPolicy
from copilot_runtime.runtime.thread_changes import ThreadChanges
from copilot_runtime.runtime.thread_policy import ThreadPolicy
from copilot_runtime.security.loopback import LoopbackGuard
from copilot_runtime.telemetry import semconv
from copilot_runtime.threads.recorder import Recorder
from copilot_runtime.threads.store import StoredRun, ThreadStore
from copilot_runtime.transports.auth import Authenticate
from copilot_runtime.transports.program_runs import ProgramRuns
from copilot_runtime.transports.thread_push.push import ThreadPush
from copilot_runtime.transports.transport import (
    Services,
    TransportLike,
    build_endpoints,
    build_transports,
)

if TYPE_CHECKING:
    import httpx
    from fastapi import FastAPI

T = TypeVar("T")

logger = logging.getLogger(__name__)


class CopilotRuntime:
    """A CopilotKit runtime: a model, actions and agents behind one URL.

    >>> runtime = CopilotRuntime(adapter=OpenAIAdapter(model="gpt-4o"), actions=[get_time])
    >>> app = runtime.app()

    It is an ASGI application itself, as `app()` is, and may be served as one.

    An object that has the methods of an interface is accepted without inheriting from it, and
    functions may be async. `aclose` closes all parts.
    """

    @explain_names(ELSEWHERE, list_options)
    def __init__(
        self,
        adapter: SupportsStream | None = None,
        *,
        instructions: Instructions | None = None,
        parameters: ParametersLike | None = None,
        actions: Source = (),
        agents: AgentsLike | None = None,
        authenticate: Authenticate | None = None,
        threads: ThreadStore | str | None = None,
        stages: Sequence[StageFunction] = (),
        properties: Mapping[str, Any] | None = None,
        hooks: Hooks | None = None,
        bus: Bus | None = None,
        transports: Sequence[TransportLike] | None = None,
        http_client: "httpx.AsyncClient | None" = None,
        settings: CoreSettings | None = None,
        extensions: Sequence[Extension] = (),
        **options: Any,
    ) -> None:
        """Build a runtime, without opening files or connections.

        Parameters:

        * **adapter** - The model of the plain chat, such as `OpenAIAdapter`. Default: none; then
          only agents answer.
        * **instructions** - The system prompt of the plain chat: a text, or a function of the
          `RunInput`, sync or async, that returns one or None. It precedes a page's system
          messages, and is neither stored in threads nor sent to pages. An agent has its own, as in
          `DirectAgent(adapter, instructions=...)`. Default: the setting `instructions`.
        * **parameters** - `Parameters` of that model, or a mapping such as `{"temperature": 0.2}`,
          as defaults for a page's requests. Default: each from the settings `parameters`.
        * **actions** - Functions made with `@action`, `Action` values, an `ActionSource`, or a
          function of the `RunInput` that returns these. They run on this server.
        * **agents** - Agents by name, or a function of the `Caller` that returns them. Agents of
          pydantic-ai and of OpenAI's Agents SDK, and graphs of LangGraph are wrapped. Raises
          `ConfigurationFailed` for other objects, and `MissingPackage`.
        * **authenticate** - A function of the `HTTPConnection` that returns the id of its user, who
          then owns the threads, or None. To refuse, it raises `AuthenticationFailed` or
          Starlette's `HTTPException`. Default: no authentication, and threads have no owner.
        * **threads** - The store of conversations, or an address such as `sqlite:threads.db`.
          Default: the store of the setting `threads`.
        * **stages** - Functions of `(events, run)` that return events; each wraps the previous one.
        * **properties** - Default properties of every request, which a client may override.
        * **hooks** - `Hooks`: functions that are called before and after a run, after an error, and
          after a stop.
        * **bus** - The event bus for run logs. Default: the one of the setting `bus`, with the
          settings `max_events_per_run`, `max_bytes_per_run` (bytes) and `log_ttl` (seconds).
        * **transports** - The protocols of clients: names, `Transport` objects, or functions of
          `Services` that return one. Default: the setting `transports`.
        * **http_client** - A client of your application, which is not closed here, for parts that
          are created from URLs and settings: remote endpoints (except the streams of their agents),
          MCP servers, the transcriber and the guardrails of `cloud_base_url`. Parts that you create
          take their own `http_client`. Default: each part opens its own connections.
        * **settings** - All settings; times in seconds, sizes in bytes. Default: loaded from
          `copilot.yml` and the environment. Arguments of this constructor take precedence.
        * **extensions** - Additional `Extension` objects, or replacements of built-in ones.

        Extensions take further arguments by name, in place of their settings:

        * **knowledge** - A `Knowledge`: its tools are actions, and it grounds the plain chat.
        * **mcp_servers** - MCP servers whose tools are actions.
        * **mcp_allowed** - Other MCP servers that a page may use: origins, URLs, `McpServer`
          values, or a function of a URL. Default: none.
        * **remote_endpoints** - Remote endpoints of CopilotKit: URLs or `RemoteEndpoint` values.
        * **a2ui**, **mcp_apps**, **open_generative_ui** - Options of generated interfaces, or
          mappings as for the Node runtime.
        * **guardrails** - Stages that may refuse a run, around all others.
        * **telemetry** - The `Telemetry` for spans, metrics and events of runs.
        * **transcriber** - The speech-to-text service.

        Raises `ConfigurationFailed` for invalid settings or parts, `UnknownName` for an
        unregistered name, and `MissingPackage` for an extra that is not installed.
        """
        check_arguments(settings, actions, threads, properties, stages, transports, authenticate)
        self.settings = settings or load_settings()
        learn_secrets(self.settings, options, threads)
        hooks = check_hooks(hooks, self.settings.deployment)
        if adapter is None:
            check_no_model(self.settings, instructions, parameters)
        self.adapter = build_empty_adapter() if adapter is None else complete(Adapter, adapter)
        self.properties = properties or {}
        self.authenticate = authenticate
        self.threads = build_thread_store(threads, self.settings)
        self.extensions = load_extensions(extensions)
        self._guard = LoopbackGuard(
            self.settings.allowed_hosts,
            self.settings.named_origins,
            self.settings.proxy.forwarders,
        )
        self._core = core = Core(
            settings=self.settings,
            adapter=self.adapter,
            threads=self.threads,
            changes=ThreadChanges(self.threads),
            guard=self._guard,
            agents=AgentRegistry(coerce_agents(agents or {})),
            sources=[*as_sources(actions)],
            options={name: value for name, value in options.items() if value is not None},
            extensions=self.extensions,
            has_hook=authenticate is not None,
            has_users=authenticate is not None,
            http_client=http_client,
        )
        self._guard.has_login = core.has_users
        added = build_contributions(self.extensions, core)
        self.telemetry = core.telemetry
        has_agents = bool(agents or added.resolvers)
        if adapter is None and not has_agents:
            logger.warning("There is neither a model nor an agent, so nothing answers a chat.")
        self.agents = core.agents.current
        self.runtime = Runtime(
            DirectAgent(
                self.adapter,
                instructions=self.settings.instructions if instructions is None else instructions,
                parameters=merge_default_parameters(self.settings, parameters),
                max_turns=self.settings.max_turns,
                action_timeout=self.settings.action_timeout,
                shared_state=self.settings.shared_state,
                retriever=core.parts.find(Retriever),
                files=core.parts.find(FileReader),
            ),
            added.resolve_agents(self.agents),
            Recorder(
                build_bus(self.settings) if bus is None else complete(Bus, bus),
                self.threads,
                telemetry=self.telemetry,
            ),
            sources=core.sources,
            stages=[verify_events, *added.stages, track_v1_state, *stages, *added.guardrails],
            hooks=hooks,
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
            files=core.parts.find(FileStore),
            middleware=added.middleware,
            run_timeout=self.settings.run_timeout,
            max_runs=self.settings.max_concurrent_runs,
            grace=self.settings.stop_timeout,
            telemetry=self.telemetry,
            observers=[*added.observers, core.changes],
        )
        self.conversations = Conversations(
            self.runtime,
            self.threads,
            when_busy=self.settings.when_busy,
            namer=self._name if self.settings.thread_names else None,
            has_users=core.has_users,
            secret=self.settings.secret,
            forget=partial(forget_thread, self.extensions),
            changes=core.changes,
        )
        core.parts.add(Conversations, self.conversations)
        self.program_runs = ProgramRuns(
            conversations=self.conversations, action_timeout=self.settings.action_timeout
        )
        self.telemetry.observe(semconv.RUNS_OPEN, lambda: len(self.runtime.active_runs()))
        self.telemetry.observe(semconv.READERS_OPEN, self.runtime.bus.count_readers)
        push = build_push(self.conversations, core)
        core.parts.add(ThreadPush, push)
        endpoints = [*added.endpoints, *([make_thread_sockets] if push.offers_sockets else [])]
        services = Services(
            runs=self.conversations,
            program_runs=self.program_runs,
            settings=self.settings,
            telemetry=self.telemetry,
            serves_chat=adapter is not None or not has_agents,
            parts=core.parts,
            schema=tuple(added.schema),
            info=added.info,
        )
        authenticator = build_authenticator(self, core)
        for extension in self.extensions:
            extension.connect(core, services, authenticator)
        self.transports = (
            *build_endpoints(endpoints, services),
            *build_transports(added.list_transports(transports, self.settings), services),
        )

    def get(self, kind: type[T]) -> T:
        """Return a part that an extension offers. Raises `ConfigurationFailed` without one."""
        return self._core.parts.get(kind)

    def find(self, kind: type[T]) -> T | None:
        """Return a part that an extension offers, such as `Knowledge`; `None` if there is none."""
        return self._core.parts.find(kind)

    def app(self, path: str | None = None, *, console: bool | None = None) -> "FastAPI":
        """Return an application: the runtime's URL at `path`, and health at `/health/…`.

        With `console`, there is a page to try it at `/`, and the OpenAPI description of all routes,
        including yours, at `/docs` and `/openapi.json`. Its lifespan also tunes Python's garbage
        collector for the whole process.
        """
        return self._server.build_app(path, console=console)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond as `app()` does, for servers that get the runtime as their application."""
        await self._own_app(scope, receive, send)

    @cached_property
    def _own_app(self) -> ASGIApp:
        return self.lazy_app()

    def lazy_app(self, path: str | None = None) -> ASGIApp:
        """Return the same application, which imports FastAPI only when a request needs it.

        Chats never need it, so the first answer comes sooner. If the program uses OpenTelemetry,
        this returns `app(path)`, because FastAPI makes the spans of requests.
        """
        return self._server.build_lazy_app(path)

    def mount(
        self,
        app: "FastAPI",
        path: str,
        *,
        dependencies: Sequence[Any] = (),
        console: bool = False,
    ) -> None:
        """Add the endpoint to an existing application, under its dependencies.

        With `console`, the pages for people are added as well, such as `/chat` and `/traces`, under
        the same dependencies, unless the application already has a route of that path. The chat is
        at `/`, too.

        Both the dependencies given here and those of the application are called before every
        request and every WebSocket; an exception becomes the response. `authenticate` can read the
        values that they store in `request.state`. If the application has a `CORSMiddleware`, it
        replaces the runtime's CORS headers.

        Dependencies reject unauthenticated clients. The owner of threads is the user that
        `authenticate` returns.
        """
        self._server.mount(app, path, dependencies=dependencies, console=console)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Start and stop the runtime without an HTTP server."""
        async with self._server.lifecycle.run():
            yield

    async def aclose(self) -> None:
        """Stop all runs, then close all parts. A part that fails is only logged."""
        await self._server.lifecycle.aclose()

    @cached_property
    def _server(self) -> AppServer:
        return AppServer(self, self._core, self.extensions, self.transports)

    def find_failing_checks(self) -> Sequence[str]:
        """Return the names of the failing parts, as in `/health/ready`."""
        return self._server.lifecycle.find_failing_checks()

    async def _name(self, runs: Sequence[StoredRun]) -> str | None:
        """Return a title for a thread, generated by the model from its first run."""
        messages = [message for run in runs[:1] for message in fold_conversation(run.events)]
        return await generate_title(self.adapter, messages)
