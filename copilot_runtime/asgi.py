"""Where an application has its router: the routes at and below a path, and the short way to it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send

from copilot_runtime.errors import ConfigurationFailed
from copilot_runtime.transports.router import Router

if TYPE_CHECKING:
    from fastapi import FastAPI

BELOW = (
    "info",
    "agent/{rest:path}",
    "threads",
    "threads/{rest:path}",
    "transcribe",
    "annotate",
    "memories",
    "memories/{rest:path}",
    "inspector-metadata",
    "cpk-debug-events",
    "actions/execute",
    "agents/execute",
    "agents/state",
    "mcp",
)
"""The paths below the URL that AG-UI clients, Node runtimes and MCP clients ask for."""


class App(Starlette):
    """Starlette, with a short way to the router.

    Starlette's own middleware, for errors, wraps each chunk twice and has nothing to do for what
    answers its errors itself. There is no short way past middleware of an operator.
    """

    def __init__(self, path: str, router: Router, **options: Any) -> None:
        self._urls = frozenset(endpoint_urls(path))
        self._runs = f"{path}/agent/"
        self._router = router
        super().__init__(**options)

    def build_middleware_stack(self) -> ASGIApp:
        others = super().build_middleware_stack()
        if self.user_middleware:  # each is made only once, and sees every request
            return others

        async def choose(scope: Scope, receive: Receive, send: Send) -> None:
            path: str = scope["path"] if scope["type"] == "http" else ""
            path = path.removeprefix(scope.get("root_path", ""))
            short = path in self._urls or path.startswith(self._runs)
            await (self._router if short else others)(scope, receive, send)

        return choose


class RouterResponse(Response):
    """A response that lets the router write the answer itself."""

    def __init__(self, router: Router) -> None:
        super().__init__()
        self._router = router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._router(scope, receive, send)


def combine_lifespans(outer: Lifespan[Any], inner: Lifespan[Any]) -> Lifespan[Any]:
    """Return a lifespan that has `inner` within `outer`, whose state is the application's."""

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncGenerator[Any, None]:
        async with outer(app) as state, inner(app):
            yield state

    return lifespan


def has_cors(app: "FastAPI") -> bool:
    """Say whether an application decides itself which browsers may read its answers."""
    from starlette.middleware.cors import CORSMiddleware  # only for mounts

    # asked at each request, because middleware may be added after the mount
    return any(middleware.cls is CORSMiddleware for middleware in app.user_middleware)


def endpoint_urls(path: str) -> list[str]:
    """Return how the path itself is written."""
    return [path, f"{path}/"] if path else ["/"]


def with_and_without_slash(url: str) -> list[str]:
    """Return a URL with and without a last slash, so that nobody is redirected."""
    return [url] if url.endswith(":path}") else [url, f"{url}/"]


def normalize_path(path: str) -> str:
    """Return the path without its last slash. Raises `ConfigurationFailed` for what is none."""
    if not path.startswith("/"):
        raise ConfigurationFailed(f"The path {path!r} must begin with a slash.")
    return path.rstrip("/")


async def health(request: Request) -> Response:  # noqa: ARG001  # Starlette's signature
    """Answer that the server is there."""
    return Response()
