"""The pages to try a runtime at: the chat, a client of AG-UI, and what the runtime knows."""

import json
from collections.abc import Sequence
from functools import cache

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from copilot_runtime.transports.console.document import Document

_SCRIPTS = (
    "wire",
    "patch",
    "conversation",
    "markdown",
    "views",
    "tools",
    "talk",
    "threads",
    "media",
    "page",
)
"""In the order they are run: what a script needs at once stands above it."""


def console_route(
    endpoint_path: str,
    path: str = "/",
    *,
    suggestions: Sequence[str] = (),
    knowledge_path: str = "",
) -> Route:
    """Return the route of a page that talks with the runtime at `endpoint_path`.

    Both paths are those inside the app; where it is mounted comes from the request. They may be
    the same: then the page is for browsers, and all other requests are for the runtime. The
    `suggestions` are what the page offers to ask the plain chat, beside what it offers everybody.
    With a `knowledge_path`, it leads to the page of that route.
    """
    offered = json.dumps(list(suggestions))

    async def answer(request: Request) -> Response:
        root = request.scope.get("root_path", "").rstrip("/")
        values = {
            "__ENDPOINT__": root + endpoint_path or "/",
            "__SUGGESTIONS__": offered,
            "__KNOWLEDGE__": root + knowledge_path if knowledge_path else "",
        }
        return _chat().respond(request, values)

    kind = _BrowserRoute if endpoint_path == path.rstrip("/") else Route
    return kind(path, answer, methods=["GET"], name="console")


def knowledge_route(endpoint_path: str, path: str = "/knowledge", *, home: str = "/") -> Route:
    """Return the route of a page that shows what the runtime at `endpoint_path` knows.

    The page itself has no data: it asks for it as whoever opens it.
    """

    async def answer(request: Request) -> Response:
        root = request.scope.get("root_path", "").rstrip("/")
        values = {"__ENDPOINT__": root + endpoint_path or "/", "__HOME__": root + home}
        return _knowledge().respond(request, values)

    return _BrowserRoute(path, answer, methods=["GET"], name="knowledge")


class _BrowserRoute(Route):
    """A route that only a browser takes that opens a page, and no query of GraphQL."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        accepts = Headers(scope=scope).get("accept", "")
        if "text/html" not in accepts or scope["query_string"]:
            return Match.NONE, {}
        return super().matches(scope)


@cache
def _chat() -> Document:
    return Document(__name__, [f"scripts/{name}.js" for name in _SCRIPTS])


@cache
def _knowledge() -> Document:
    return Document("copilot_runtime.transports.knowledge.console", ["page.js"])
