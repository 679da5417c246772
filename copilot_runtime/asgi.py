"""The FastAPI application of a runtime: its routes, its description, the short way to its router.

Importing FastAPI takes a while, so this module is imported by those who make an application.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send

from copilot_runtime import __version__
from copilot_runtime.transports.router import Router
from copilot_runtime.transports.urls import ChatUrls, spell_url

_OPENAPI_PATH = "/openapi.json"


class App(FastAPI):
    """FastAPI, with a short way to the router. Add routes of your own as to any other.

    Middleware of FastAPI and Starlette, for errors, wraps each chunk and has nothing to do for
    what answers its errors itself. There is no short way past middleware of an operator.
    """

    def __init__(
        self, path: str, router: Router, *, typed: Sequence[BaseRoute], lifespan: Lifespan[Any]
    ) -> None:
        self._chats = ChatUrls(path)
        self._path = path
        self._router = router
        self._typed = [
            *typed,
            *(route for url in dict.fromkeys((path, "")) for route in health_routes(url)),
        ]
        self._rest = Route(f"{path}/{{rest:path}}", router)
        super().__init__(
            title="copilot-runtime",
            version=__version__,
            routes=[
                *(kind(url, router) for kind in (Route, WebSocketRoute) for url in spell_url(path)),
                *self._typed,
            ],
            lifespan=lifespan,
            docs_url=None,  # FastAPI's own pages need another host
            redoc_url=None,
            openapi_url=None,
        )

    def add_docs(self) -> None:
        """Add the description of all routes, as a page at `/docs` and for programs."""
        self.add_route("/docs", self._show_docs, include_in_schema=False)
        self.add_route(_OPENAPI_PATH, self._show_openapi, include_in_schema=False)

    async def _show_openapi(self, request: Request) -> Response:  # noqa: ARG002  # Starlette's signature
        return JSONResponse(self.openapi())

    async def _show_docs(self, request: Request) -> Response:
        """Answer with a page that needs no script and no other host."""
        from copilot_runtime.transports.console.reference import render_reference

        url = request.scope.get("root_path", "").rstrip("/") + _OPENAPI_PATH
        policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
        headers = {"content-security-policy": policy, "x-content-type-options": "nosniff"}
        return HTMLResponse(render_reference(self.openapi(), url), headers=headers)

    def build_middleware_stack(self) -> ASGIApp:
        # not before the first request: routes of an operator come before ours, but for those that
        # take every path, such as the files of a page mounted at "/"
        routes = [route for route in self.routes if route not in self._typed]
        catch_all = [route for route in routes if self._path and _takes_every_path(route)]
        routes = [route for route in routes if route not in catch_all]
        self.router.routes[:] = [*routes, *self._typed, self._rest, *catch_all]
        stack = super().build_middleware_stack()
        if self.user_middleware:  # each is made only once, and sees every request
            return stack

        async def choose(scope: Scope, receive: Receive, send: Send) -> None:
            await (self._router if self._chats.match(scope) else stack)(scope, receive, send)

        return choose


def _takes_every_path(route: BaseRoute) -> bool:
    path = getattr(route, "path", None)
    return path == "" or (path is not None and path.startswith("/{") and path.endswith(":path}"))


def combine_lifespans(outer: Lifespan[Any], inner: Lifespan[Any]) -> Lifespan[Any]:
    """Return a lifespan that has `inner` within `outer`, whose state is the application's."""

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncGenerator[Any, None]:
        async with outer(app) as state, inner(app):
            yield state

    return lifespan


def has_cors(app: FastAPI) -> bool:
    """Return whether an application decides itself which browsers may read its answers."""
    # asked at each request, because middleware may be added after the mount
    return any(middleware.cls is CORSMiddleware for middleware in app.user_middleware)


def health_routes(path: str) -> Sequence[BaseRoute]:
    """Return the routes of `health` below a path, of which one is described."""
    url = f"{path}/health"
    described = APIRoute(url, health, tags=["server"], methods=["GET"], response_class=Response)
    return described, Route(url, health, methods=["HEAD"])


async def health(request: Request) -> Response:  # noqa: ARG001  # Starlette's signature
    """Answer that the server is there."""
    return Response()
