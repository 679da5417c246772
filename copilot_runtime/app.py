"""Put the pieces together: from what an operator names to one ASGI application.

Read it from top to bottom to see what there is.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send
from starlette.websockets import WebSocket

from copilot_runtime.actions.frontend import Actions, Source
from copilot_runtime.actions.functions import as_actions
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.bus.memory import MemoryBus
from copilot_runtime.collector import tuned_collector
from copilot_runtime.config import Settings, load_settings
from copilot_runtime.errors import ConfigurationFailed
from copilot_runtime.hooks import (
    AfterRequest,
    BeforeRequest,
    Hooks,
    OnError,
    OnStop,
    call_quietly,
)
from copilot_runtime.interfaces import Adapter, Agent, Bus, Stage
from copilot_runtime.runtime import Runtime
from copilot_runtime.security.cors import Cors
from copilot_runtime.security.guardrails import from_settings
from copilot_runtime.transports.graphql.endpoint import GraphQLEndpoint

if TYPE_CHECKING:
    from fastapi import FastAPI


class CopilotRuntime:
    """A CopilotKit runtime: a model, actions and agents behind one URL.

    >>> runtime = CopilotRuntime(adapter=OpenAIAdapter(model="gpt-4o"), actions=[get_time])
    >>> app = runtime.app()

    `actions` are functions made with `@action`, `Action` values, or functions of the `RunInput`
    that return such; `agents` answer requests that name them. The events of every run pass the
    `stages`, then the `guardrails`, each around the one before. The `on_` hooks may be async.
    Without `settings`, they come from `copilot.yml` and the environment.
    """

    def __init__(
        self,
        adapter: Adapter | None = None,
        *,
        actions: Source = (),
        agents: Mapping[str, Agent] | None = None,
        guardrails: Sequence[Stage] = (),
        stages: Sequence[Stage] = (),
        properties: Mapping[str, Any] | None = None,
        on_before_request: BeforeRequest | None = None,
        on_after_request: AfterRequest | None = None,
        on_error: OnError | None = None,
        on_stop: OnStop | None = None,
        bus: Bus | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.settings = settings or load_settings()
        self.adapter = adapter or _empty()
        self.properties = properties or {}
        self.runtime = Runtime(
            DirectAgent(
                self.adapter,
                max_turns=self.settings.max_turns,
                action_timeout=self.settings.action_timeout,
            ),
            agents or {},
            bus
            if bus is not None  # an empty one is false
            else MemoryBus(
                max_events=self.settings.max_events_per_run,
                max_bytes=self.settings.max_bytes_per_run,
                ttl=self.settings.log_ttl,
            ),
            sources=_sources(actions),
            stages=[*stages, *guardrails, *from_settings(self.settings)],
            hooks=Hooks(
                before_request=on_before_request,
                after_request=on_after_request,
                error=on_error,
                stop=on_stop,
            ),
            run_timeout=self.settings.run_timeout,
            max_runs=self.settings.max_concurrent_runs,
        )

    def app(self, path: str | None = None, *, playground: bool | None = None) -> Starlette:
        """Return an application: GraphQL at `path`, `/health`, and a page to try it at `/`.

        Its lifespan also makes Python's garbage collector look less often, for the whole process.
        """
        path = _clean(path or self.settings.path)
        endpoint = self._endpoint()
        routes: list[BaseRoute] = [
            *(Route(url, endpoint) for url in _urls(path)),
            *(WebSocketRoute(url, endpoint) for url in _urls(path)),
            Route(f"{path}/health", _health),
        ]
        if playground if playground is not None else self.settings.playground:
            from copilot_runtime.playground import playground_route

            routes.append(playground_route(path))
        if path:
            routes.append(Route("/health", _health))
        lifespan = _joined(tuned_collector, self._lifespan)
        return _App(_urls(path), endpoint, routes=routes, lifespan=lifespan)

    def mount(self, app: "FastAPI", path: str, *, dependencies: Sequence[Any] = ()) -> None:
        """Add the endpoint to an application of yours, under its dependencies.

        Both the dependencies given here and those of the application are asked before every
        request and every WebSocket; what they raise is what the client gets. If the application
        has a `CORSMiddleware`, that one decides which browsers may read an answer.
        """
        endpoint = self._endpoint(silent=lambda: _has_cors(app))

        async def answer(request: Request) -> Response:  # noqa: ARG001  # FastAPI passes it by name
            return _Handover(endpoint)

        async def socket(websocket: WebSocket) -> None:
            await endpoint(websocket.scope, websocket.receive, websocket.send)

        asked = list(dependencies)
        path = _clean(path)
        for url in _urls(path):
            # a preflight carries no login, so no dependency may refuse it
            app.router.routes.append(Route(url, _Handover(endpoint), methods=["OPTIONS"]))
            app.add_api_route(
                url,
                answer,
                methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
                include_in_schema=False,
                response_model=None,
                dependencies=asked,
            )
            app.add_api_websocket_route(url, socket, dependencies=asked)
        app.router.routes.append(Route(f"{path}/health", _health))
        app.router.lifespan_context = _joined(app.router.lifespan_context, self._lifespan)

    async def aclose(self) -> None:
        """Stop all runs, then close whatever has an `aclose`. One that fails is only logged."""
        runtime = self.runtime
        await runtime.aclose()
        parts = (self.adapter, *runtime.agents.values(), *runtime.stages, *runtime.sources)
        for part in (*parts, runtime.bus):
            await call_quietly(getattr(part, "aclose", None))

    def _endpoint(self, silent: Callable[[], bool] = lambda: False) -> GraphQLEndpoint:
        settings = self.settings
        origins, credentials = settings.cors_origins, settings.cors_credentials
        return GraphQLEndpoint(
            self.runtime,
            properties=self.properties,
            forwards=settings.forwards,
            cors=Cors(origins, credentials=credentials, silent=silent),
            max_body_bytes=settings.max_body_bytes,
            max_messages=settings.max_messages,
            max_depth=settings.max_depth,
            max_aliases=settings.max_aliases,
            max_tokens=settings.max_tokens_in_document,
            introspection=settings.introspection,
            write_timeout=settings.write_timeout,
        )

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncGenerator[None, None]:  # noqa: ARG002  # Starlette's signature
        try:
            yield
        finally:
            await self.aclose()


class _App(Starlette):
    """Starlette, with a short way to one endpoint.

    Starlette's own middleware, for errors, wraps each chunk twice and has nothing to do for an
    endpoint that answers its errors itself. There is no short way past middleware of an operator.
    """

    def __init__(self, urls: Sequence[str], endpoint: GraphQLEndpoint, **options: Any) -> None:
        self._urls = frozenset(urls)
        self._endpoint = endpoint
        super().__init__(**options)

    def build_middleware_stack(self) -> ASGIApp:
        others = super().build_middleware_stack()
        if self.user_middleware:  # each is made only once, and sees every request
            return others

        async def choose(scope: Scope, receive: Receive, send: Send) -> None:
            path: str = scope["path"] if scope["type"] == "http" else ""
            short = path.removeprefix(scope.get("root_path", "")) in self._urls
            await (self._endpoint if short else others)(scope, receive, send)

        return choose


class _Handover(Response):
    """A response that lets an endpoint write the answer itself."""

    def __init__(self, endpoint: GraphQLEndpoint) -> None:
        super().__init__()
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._endpoint(scope, receive, send)


def _joined(outer: Lifespan[Any], inner: Lifespan[Any]) -> Lifespan[Any]:
    """Return a lifespan that has `inner` within `outer`, whose state is the application's."""

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncGenerator[Any, None]:
        async with outer(app) as state, inner(app):
            yield state

    return lifespan


def _sources(actions: Source) -> list[Source]:
    """Make the actions of a list now, so that a wrong one is an error at the start."""
    if not isinstance(actions, Sequence):
        return [actions]
    own: Actions = [item for item in actions if not hasattr(item, "actions")]
    others = [cast("Source", item) for item in actions if hasattr(item, "actions")]
    return [as_actions(own), *others]


def _has_cors(app: "FastAPI") -> bool:
    from starlette.middleware.cors import CORSMiddleware  # only for mounts

    # asked at each request, because middleware may be added after the mount
    return any(middleware.cls is CORSMiddleware for middleware in app.user_middleware)


def _urls(path: str) -> list[str]:
    return [path, f"{path}/"] if path else ["/"]


def _clean(path: str) -> str:
    if not path.startswith("/"):
        raise ConfigurationFailed(f"The path {path!r} must begin with a slash.")
    return path.rstrip("/")


def _empty() -> Adapter:
    from copilot_runtime.adapters.empty import EmptyAdapter  # only for those who have no model

    return EmptyAdapter()


async def _health(request: Request) -> Response:  # noqa: ARG001  # Starlette's signature
    return Response()
