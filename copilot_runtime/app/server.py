"""Serve a runtime over HTTP: build its router, its health endpoints, and its applications."""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from copilot_runtime.api.argument_checks import describe
from copilot_runtime.app.extension import Core, Extension
from copilot_runtime.app.lazy_app import LazyApp, is_traced
from copilot_runtime.app.lifecycle import Lifecycle
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.base.gc_tuning import tune_while_serving
from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.security.cors import Cors
from copilot_runtime.security.schemes import SchemeChain
from copilot_runtime.transports.auth import Authenticate, Authenticator
from copilot_runtime.transports.router import Router, RouterResponse, normalize_path
from copilot_runtime.transports.thread_push.join_tokens import JoinTokens, OpenStreams
from copilot_runtime.transports.thread_push.push import ThreadPush
from copilot_runtime.transports.transport import Services, Transport

if TYPE_CHECKING:
    from fastapi import FastAPI

    from copilot_runtime.app import asgi

logger = logging.getLogger(__name__)

_STATE = "copilot_runtime"
"""The attribute of an application's `state` that holds its `RuntimeEndpoint`."""


class HasCallers(Protocol):
    """The parts of a runtime that authenticate requests; tests may replace them."""

    authenticate: Authenticate | None
    properties: Mapping[str, Any]


class RuntimeEndpoint(NamedTuple):
    """A runtime within an application: the path of its URL, and that of its chat, or none."""

    runtime: HasCallers
    path: str
    page: str


def find_endpoint(app: object) -> RuntimeEndpoint | None:
    """Return the endpoint of the runtime in an application, the last of several, or `None`."""
    endpoint = getattr(getattr(app, "state", None), _STATE, None)
    return endpoint if isinstance(endpoint, RuntimeEndpoint) else None


def build_authenticator(runtime: HasCallers, core: Core) -> Authenticator:
    """Return the authenticator of a runtime's requests."""
    settings = core.settings
    return Authenticator(
        runtime.authenticate,
        settings.forwards,
        runtime.properties,
        schemes=core.parts.find(SchemeChain),
        access=settings.access,
        operators=core.operators,
        proxies=settings.proxy.forwarders,
    )


def build_push(conversations: Conversations, core: Core) -> ThreadPush:
    """Return the shared state of thread subscriptions."""
    return ThreadPush(
        conversations,
        OpenStreams(core.streams_per_user),
        JoinTokens(core.load_secret),
        is_own_name=core.guard.is_own_name,
        url=core.settings.realtime_url,
    )


def make_thread_sockets(services: Services) -> Any:
    """Return the WebSocket transport; its module is imported on first use."""
    from copilot_runtime.transports.thread_push.endpoint import ThreadSocketEndpoint

    return ThreadSocketEndpoint(services)


class AppServer:
    """Builds applications for a runtime, which share its transports and lifecycle."""

    def __init__(
        self,
        runtime: "HasCallers",
        core: Core,
        extensions: Sequence[Extension],
        transports: Sequence[Transport],
    ) -> None:
        self.lifecycle = Lifecycle(core, extensions, transports)
        self._runtime = runtime
        self._core = core
        self._extensions = extensions
        self._transports = transports
        self._has_warned = False

    def build_app(self, path: str | None, *, console: bool | None) -> "FastAPI":
        """Return a FastAPI application; path and `console` default to the settings."""
        from copilot_runtime.app import asgi

        settings = self._core.settings
        path = normalize_path(path or settings.path)
        router = self._build_router(path)
        typed = [route for part in self._transports for route in part.routes(path, router)]
        typed += self._list_routes("")
        if path:
            typed += _list_root_routes(self._transports, path, router)
        app = asgi.App(
            path,
            router,
            health=self._build_health(),
            typed=typed,
            sockets=[f"{path}/{end}" for part in self._transports for end in part.socket_paths],
            lifespan=self._tuned_lifespan,
        )
        has_pages = settings.console.enabled if console is None else console
        setattr(app.state, _STATE, RuntimeEndpoint(self._runtime, path, "/" if has_pages else ""))
        if has_pages:
            app.router.routes[:0] = [page for one in self._extensions for page in one.pages(path)]
            app.add_docs()
        return app

    def build_lazy_app(self, path: str | None) -> ASGIApp:
        """Return an application that imports FastAPI only when a request needs it."""
        if is_traced():
            return self.build_app(path, console=None)
        url = normalize_path(path or self._core.settings.path)
        return LazyApp(
            url,
            self._build_router(url),
            make=lambda: self.build_app(path, console=None),
            lifespan=self._tuned_lifespan,
        )

    def mount(
        self, app: "FastAPI", path: str, *, dependencies: Sequence[Any], console: bool
    ) -> None:
        """Add the endpoint, and with `console` the pages, to a FastAPI application.

        Raises `ConfigurationFailed` for any other application.
        """
        from copilot_runtime.app import asgi

        if not hasattr(app, "add_api_route"):
            raise ConfigurationFailed(
                f"The application is {describe(app)}, and not FastAPI.",
                hint="Write runtime.mount(app, '/graphql'). Any other ASGI framework mounts "
                "runtime.app(), and enters its lifespan.",
            )
        path = normalize_path(path)
        router = self._build_router(path, is_silent=lambda: asgi.has_cors(app))
        self._note_dependencies(bool(dependencies or app.router.dependencies))
        asgi.add_endpoint(
            app,
            path,
            router,
            self._transports,
            health=self._build_health(),
            beside=self._list_routes(path),
            dependencies=dependencies,
        )
        pages = [page for one in self._extensions for page in one.pages(path)] if console else []
        chat = asgi.find_chat(app, pages)
        asgi.add_pages(app, pages, dependencies)
        setattr(app.state, _STATE, RuntimeEndpoint(self._runtime, path, chat))
        app.router.lifespan_context = asgi.combine_lifespans(
            app.router.lifespan_context, self._lifespan
        )

    def _list_routes(self, prefix: str) -> list[BaseRoute]:
        return [route for one in self._extensions for route in one.routes(prefix)]

    def _build_router(self, path: str, is_silent: Callable[[], bool] = lambda: False) -> Router:
        settings = self._core.settings
        for extension in self._extensions:
            extension.place(path)
        named, credentials = settings.named_origins, settings.cors_credentials
        origins = ["*"] if "auto" in settings.cors_origins else named
        return Router(
            path,
            self._transports,
            cors=Cors(origins, credentials=credentials, is_silent=is_silent),
            pages=Cors([origin for origin in named if origin != "*"]),
            guard=self._core.guard,
            authenticator=build_authenticator(self._runtime, self._core),
            max_body_bytes=settings.max_body_bytes,
            max_values=settings.max_values,
            read_timeout=settings.read_timeout,
            write_timeout=settings.write_timeout,
            policies=self._core.policies,
        )

    def _build_health(self) -> "asgi.Health":
        from copilot_runtime.app import asgi

        runtime = self._core.conversations.runtime
        return asgi.Health(
            is_closing=lambda: runtime.is_closing,
            is_draining=lambda: runtime.is_draining,
            find_threads=self.lifecycle.find_threads_state,
            describe=self.lifecycle.describe_health,
            find_failing_checks=self.lifecycle.find_failing_checks,
        )

    def _note_dependencies(self, are_there: bool) -> None:
        """Log a warning if dependencies authenticate users but threads have no owner."""
        self._core.guard.has_login |= are_there
        if are_there and not self._core.has_users and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "The runtime is mounted with dependencies, but without authenticate: all users "
                "whom they admit share all threads. Give CopilotRuntime an authenticate function "
                "that returns the user whom a dependency stored in request.state."
            )

    @asynccontextmanager
    async def _tuned_lifespan(self, app: Any) -> AsyncGenerator[None, None]:
        async with tune_while_serving(app), self._lifespan(app):
            yield

    @asynccontextmanager
    async def _lifespan(self, app: Any) -> AsyncGenerator[None, None]:  # noqa: ARG002  # Starlette's signature
        async with self.lifecycle.run():
            yield


def _list_root_routes(
    transports: Sequence[Transport], path: str, router: Router
) -> Sequence[BaseRoute]:
    """Return routes for paths that clients also request at the root of the server."""
    found: list[BaseRoute] = []
    for name in dict.fromkeys(name for part in transports for name in part.root_paths):
        url = f"{path}/{name}"
        response = RouterResponse(router, {"path": url, "raw_path": url.encode()})
        found.append(Route(f"/{name}", response))
    return found
