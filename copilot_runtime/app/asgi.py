"""The FastAPI application of a runtime: routes, OpenAPI description, and a shortcut to the router.

Importing FastAPI takes a while, so this module is only imported when an application is made.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from time import monotonic
from typing import Any, Literal

from fastapi import FastAPI
from fastapi.routing import request_response
from pydantic import BaseModel
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send
from starlette.websockets import WebSocket

from copilot_runtime import __version__
from copilot_runtime.app.extension import OffPage
from copilot_runtime.threads.store import ThreadsState
from copilot_runtime.transports.rest_route import RestRoute
from copilot_runtime.transports.router import ChatUrls, Router, RouterResponse, spell_url
from copilot_runtime.transports.transport import Transport

_OPENAPI_PATH = "/openapi.json"

_FRESH = 1.0
"""Seconds for which a health result is cached: anonymous clients may request it."""

_PATIENCE = 2.0
"""Timeout after which a store counts as unreachable, in seconds."""


class KnowledgeReadiness(BaseModel):
    """Whether knowledge is up to date. Its size and the failed sources are in the log."""

    state: Literal["closed", "updating", "ready", "incomplete", "failed"]


class Readiness(BaseModel):
    """Whether the runtime can answer questions, and which parts fail. It is public.

    If `threads` is `read-only`, stored threads can be read, but no questions can be answered.
    `knowledge` is present if the runtime has some. Questions are also answered during its update,
    and while the parts in `failing` fail: `traces` (spans cannot be stored), `exporter` (its
    receiver rejects spans), `plans` (they wait until they can be stored), the `carrier` to other
    processes, the store of `limits`, the `provider` (the latest requests failed), and `tools`
    that are left out, with names and reasons unless users sign in.
    """

    status: Literal["ready", "not ready"]
    threads: ThreadsState
    knowledge: KnowledgeReadiness | None = None
    failing: list[str] | None = None


class Health:
    """The health endpoints for monitoring.

    `is_closing` returns `True` if the runtime refuses runs, `is_draining` if it soon will and load
    balancers should avoid it. `find_threads` returns the state of the thread store, `describe`
    further fields, and `find_failing_checks` the names of failing parts that chats do not depend
    on.
    """

    def __init__(
        self,
        *,
        is_closing: Callable[[], bool],
        is_draining: Callable[[], bool] = lambda: False,
        find_threads: Callable[[], Awaitable[ThreadsState]],
        describe: Callable[[], Mapping[str, Any]] = dict,
        find_failing_checks: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._is_closing = is_closing
        self._is_draining = is_draining
        self._find_threads = _SharedLook(find_threads)
        self._describe = describe
        self._find_failing_checks = find_failing_checks

    def routes(self, path: str) -> Sequence[BaseRoute]:
        """Return the health routes below a path; `/docs` describes the GET routes."""
        answers = (self.open, self.live, self.ready)
        routes = _make_health_routes(path)
        heads = [
            Route(route.path, answer, methods=["HEAD"])
            for route, answer in zip(routes, answers, strict=True)
        ]
        bound = [
            route.bind(request_response(answer))
            for route, answer in zip(routes, answers, strict=True)
        ]
        return [*bound, *heads]

    async def live(self, request: Request) -> Response:  # noqa: ARG002  # Starlette's signature
        """Liveness: always 200, even during a shutdown, which a restart would not repair."""
        return Response()

    async def open(self, request: Request) -> Response:  # noqa: ARG002  # Starlette's signature
        """Return 200, or 503 once the runtime refuses runs."""
        return Response(status_code=503 if self._is_closing() else 200)

    async def ready(self, request: Request) -> Response:  # noqa: ARG002  # Starlette's signature
        """Readiness: 200, or 503 if the runtime cannot answer questions now."""
        threads = await self._find_threads()
        can_answer = threads == "reachable"
        is_ready = can_answer and not self._is_closing() and not self._is_draining()
        found = Readiness(
            status="ready" if is_ready else "not ready",
            threads=threads,
            failing=[*self._find_failing_checks()] or None,
            **self._describe(),
        )
        return JSONResponse(
            found.model_dump(exclude_none=True), status_code=200 if is_ready else 503
        )


class _SharedLook:
    """Caches the state of the thread store for a second, and shares one check among all requests.

    A request never waits longer than the timeout: with a network that drops packets, even the
    cancellation of a check may hang.
    """

    def __init__(self, find_threads: Callable[[], Awaitable[ThreadsState]]) -> None:
        self._find_threads = find_threads
        self._look: asyncio.Task[None] | None = None
        self._began_at = 0.0
        self._state: ThreadsState = "unreachable"
        self._fresh_until = -1.0

    async def __call__(self) -> ThreadsState:
        """Return the state of the store."""
        if monotonic() <= self._fresh_until:
            return self._state
        if self._look is None or self._look.done():
            self._began_at = monotonic()
            self._look = asyncio.create_task(self._find(), name="look at threads")
        patience = max(0.0, self._began_at + _PATIENCE - monotonic())
        done, _ = await asyncio.wait((self._look,), timeout=patience)
        return self._state if done else "unreachable"

    async def _find(self) -> None:
        self._state = await self._find_threads()
        self._fresh_until = monotonic() + _FRESH


@lru_cache(maxsize=16)
def _make_health_routes(path: str) -> Sequence[RestRoute]:
    async def health() -> None:
        """Return 200 if the server accepts questions, and 503 once it does not."""

    async def live() -> None:
        """Return 200 as long as the process runs, even during a shutdown."""

    async def ready() -> None:
        """Return 200 if questions can be answered now, else 503."""

    return (
        RestRoute(f"{path}/health", health, tags=["server"], response_class=Response),
        RestRoute(f"{path}/health/live", live, tags=["server"], response_class=Response),
        RestRoute(
            f"{path}/health/ready",
            ready,
            tags=["server"],
            response_model=Readiness,
            responses={503: {"model": Readiness, "description": "Not ready"}},
        ),
    )


class App(FastAPI):
    """FastAPI with a shortcut to the router.

    Add your own routes as to any other FastAPI application.

    The error-handling middleware of FastAPI and Starlette wraps each chunk, and the router handles
    its errors itself, so chats skip that middleware. If the operator adds middleware, nothing is
    skipped.
    """

    def __init__(
        self,
        path: str,
        router: Router,
        *,
        health: Health,
        typed: Sequence[BaseRoute],
        sockets: Sequence[str] = (),
        lifespan: Lifespan[Any],
    ) -> None:
        self._chats = ChatUrls(path)
        self._path = path
        self._router = router
        self._typed = [
            *typed,
            *(WebSocketRoute(url, router) for url in sockets),
            *(route for url in dict.fromkeys((path, "")) for route in health.routes(url)),
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
            docs_url=None,  # FastAPI's own pages load scripts from another host
            redoc_url=None,
            openapi_url=None,
        )

    def add_docs(self) -> None:
        """Add the OpenAPI description of all routes, as a page at `/docs` and as JSON."""
        self.add_route("/docs", self._show_docs, include_in_schema=False)
        self.add_route(_OPENAPI_PATH, self._show_openapi, include_in_schema=False)

    async def _show_openapi(self, request: Request) -> Response:  # noqa: ARG002  # Starlette's signature
        return JSONResponse(self.openapi())

    async def _show_docs(self, request: Request) -> Response:
        """Respond with an HTML page that needs no scripts and no other hosts."""
        from copilot_runtime.app.reference import render_reference

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
        # the stack is built once, and handles every request
        is_short = not self.user_middleware

        async def choose(scope: Scope, receive: Receive, send: Send) -> None:
            if is_short and self._chats.match(scope):
                await self._router(scope, receive, send)
                return
            is_request = scope["type"] in ("http", "websocket")
            if not (is_request and await self._router.turn_away(scope, receive, send)):
                await stack(scope, receive, send)

        return choose


def _takes_every_path(route: BaseRoute) -> bool:
    path = getattr(route, "path", None)
    return path == "" or (path is not None and path.startswith("/{") and path.endswith(":path}"))


def add_endpoint(
    app: FastAPI,
    path: str,
    router: Router,
    transports: Sequence[Transport],
    *,
    health: Health,
    beside: Sequence[BaseRoute],
    dependencies: Sequence[Any],
) -> None:
    """Mount the router's routes in an existing application, under FastAPI dependencies."""

    async def answer(request: Request) -> Response:  # noqa: ARG001  # FastAPI passes it by name
        return RouterResponse(router)

    async def socket(websocket: WebSocket) -> None:
        await router(websocket.scope, websocket.receive, websocket.send)

    depends = list(dependencies)
    below = [f"/{item}" for part in transports for item in part.paths if item]
    app.router.routes.append(Route(f"{path}/health", health.open))
    app.router.routes.append(Route(f"{path}/health/live", health.live))
    app.router.routes.append(Route(f"{path}/health/ready", health.ready))
    app.router.routes.extend(beside)
    for url in [url for end in dict.fromkeys(("", *below)) for url in spell_url(path + end)]:
        # a preflight has no credentials, so no dependency may refuse it
        app.router.routes.append(Route(url, RouterResponse(router), methods=["OPTIONS"]))
        app.add_api_route(
            url,
            answer,
            methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            include_in_schema=False,
            response_model=None,
            dependencies=depends,
        )
    for url in spell_url(path):
        app.add_api_websocket_route(url, socket, dependencies=depends)
    for part in transports:
        for end in part.socket_paths if part.has_own_auth else ():
            app.router.routes.append(WebSocketRoute(f"{path}/{end}", router))


def add_pages(app: FastAPI, pages: Sequence[BaseRoute], dependencies: Sequence[Any]) -> None:
    """Add pages to an existing application, under FastAPI dependencies.

    A route of the application with the path of a page takes precedence. Pages that are off are left
    out: the application may have their paths.
    """
    for page in pages:
        if isinstance(page, Route) and not isinstance(page, OffPage):
            app.add_api_route(
                page.path,
                _make_answer(page.app),
                methods=sorted(page.methods or ()),
                include_in_schema=False,
                response_model=None,
                dependencies=list(dependencies),
            )


def find_chat(app: FastAPI, pages: Sequence[BaseRoute]) -> str:
    """Return the shortest path of the chat that an application has no route of; empty for none."""
    own = {route.path for route in app.routes if isinstance(route, Route)}
    routes = (page for page in pages if isinstance(page, Route) and page.name == "console")
    return min((route.path for route in routes if route.path not in own), default="")


def _make_answer(page: ASGIApp) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:  # noqa: ARG001  # FastAPI passes it by name
        return RouterResponse(page)

    return answer


def combine_lifespans(outer: Lifespan[Any], inner: Lifespan[Any]) -> Lifespan[Any]:
    """Return a lifespan that runs `inner` inside `outer` and yields the state of `outer`."""

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncGenerator[Any, None]:
        async with outer(app) as state, inner(app):
            yield state

    return lifespan


def has_cors(app: FastAPI) -> bool:
    """Return `True` if an application has its own CORS middleware."""
    # checked at each request, because middleware may be added after the mount
    return any(middleware.cls is CORSMiddleware for middleware in app.user_middleware)
