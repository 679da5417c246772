"""The pages to try a runtime at: the chat, what the runtime knows, and what it did."""

import json
from collections.abc import Callable, Sequence
from functools import cache

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from copilot_runtime.extensions.console.document import Document

_SCRIPTS = (
    "wire",
    "patch",
    "conversation",
    "markdown",
    "findings",
    "frames/sandbox",
    "frames/media",
    "frames/generated_page",
    "frames/mcp_app",
    "a2ui/catalog",
    "a2ui/functions",
    "a2ui/bindings",
    "a2ui/icons",
    "a2ui/components",
    "a2ui/surface",
    "views",
    "tools",
    "talk",
    "runs",
    "threads",
    "media",
    "page",
)
"""In the order they are run: what a script needs at once stands above it."""

_DATA_SCRIPTS = ("scripts/data.js",)
"""What the pages *Access*, *Data*, *Knowledge*, *Plans* and *Traces* have in common."""
_FORMAT_SCRIPTS = (*_DATA_SCRIPTS, "scripts/format.js")
_PLANS_SCRIPTS = ("api", "tree", "questions", "task", "page")
_ANALYST_SCRIPTS = ("api", "table", "answer", "page")
_TRACES_SCRIPTS = ("api", "spans", "waterfall", "details", "flow", "difference", "page")


def console_route(
    endpoint_path: str,
    path: str = "/",
    *,
    suggestions: Sequence[str] = (),
    knowledge_path: str = "",
    plans_path: str = "",
    traces_path: str = "",
    analyst_path: str = "",
    access_path: str = "",
    keeps_traces: bool = False,
    sandbox_path: str = "",
    draws_surfaces: bool = False,
) -> Route:
    """Return the route of a page that talks with the runtime at `endpoint_path`.

    Both paths are those inside the app; where it is mounted comes from the request. They may be
    the same: then the page is for browsers, and all other requests are for the runtime. The
    `suggestions` are what the page offers to ask the plain chat, beside what it offers everybody.
    With a `knowledge_path`, a `plans_path`, a `traces_path`, an `analyst_path` and an
    `access_path`, it leads to the pages of those routes. If the server `keeps_traces`, answers can
    be rated, and lead to their traces. With the `sandbox_path` of a `sandbox_route`, it shows MCP
    apps and pages that models write. If it `draws_surfaces`, it tells agents the components of A2UI
    that it draws.
    """
    offered = json.dumps(list(suggestions))

    async def answer(request: Request) -> Response:
        root = request.scope.get("root_path", "").rstrip("/")
        values = {
            "__ENDPOINT__": root + endpoint_path or "/",
            "__SUGGESTIONS__": offered,
            "__KNOWLEDGE__": root + knowledge_path if knowledge_path else "",
            "__PLANS__": root + plans_path if plans_path else "",
            "__TRACES__": root + traces_path if traces_path else "",
            "__ANALYST__": root + analyst_path if analyst_path else "",
            "__ACCESS__": root + access_path if access_path else "",
            "__KEEPS_TRACES__": "yes" if traces_path and keeps_traces else "",
            "__SANDBOX__": root + sandbox_path if sandbox_path else "",
            "__SURFACES__": "yes" if draws_surfaces else "",
        }
        return _chat().respond(request, values)

    kind = _BrowserRoute if endpoint_path == path.rstrip("/") else Route
    return kind(path, answer, methods=["GET"], name="console")


def knowledge_route(endpoint_path: str, path: str = "/knowledge", *, home: str = "/") -> Route:
    """Return the route of a page that shows what the runtime at `endpoint_path` knows.

    The page itself has no data: it asks for it as whoever opens it.
    """
    return _page_route(_knowledge, endpoint_path, path, "knowledge", home=home)


def plans_route(
    endpoint_path: str, path: str = "/plans", *, home: str = "/", traces_path: str = ""
) -> Route:
    """Return the route of a page that shows the plans of the runtime at `endpoint_path`.

    The page itself has no data: it asks for it as whoever opens it. With a `traces_path`, it leads
    operators to the page of that route.
    """
    return _page_route(_plans, endpoint_path, path, "plans", home=home, traces_path=traces_path)


def traces_route(endpoint_path: str, path: str = "/traces", *, home: str = "/") -> Route:
    """Return the route of a page that shows what the runtime at `endpoint_path` did.

    The page itself has no data: it asks for it as whoever opens it.
    """
    return _page_route(_traces, endpoint_path, path, "traces", home=home)


def analyst_route(endpoint_path: str, path: str = "/data", *, home: str = "/") -> Route:
    """Return the route of a page that answers questions about the data at `endpoint_path`.

    The page itself has no data: it asks for it as whoever opens it.
    """
    return _page_route(_analyst, endpoint_path, path, "analyst", home=home)


def access_route(endpoint_path: str, path: str = "/access", *, home: str = "/") -> Route:
    """Return the route of a page that shows who may do what at `endpoint_path`.

    The page itself has no data: it asks for it as whoever opens it.
    """
    return _page_route(_access, endpoint_path, path, "access", home=home)


def _page_route(
    open_document: Callable[[], Document],
    endpoint_path: str,
    path: str,
    name: str,
    *,
    home: str,
    traces_path: str = "",
) -> Route:
    """Return the route of a page of data, which leads back to `home`.

    It is for browsers alone where the runtime itself answers at its path.
    """

    async def answer(request: Request) -> Response:
        root = request.scope.get("root_path", "").rstrip("/")
        values = {
            "__ENDPOINT__": root + endpoint_path or "/",
            "__HOME__": root + home,
            "__TRACES__": root + traces_path if traces_path else "",
        }
        return open_document().respond(request, values)

    is_same = f"{endpoint_path.rstrip('/')}/{name}" == path
    kind = _BrowserRoute if is_same else Route
    return kind(path, answer, methods=["GET"], name=name)


class _BrowserRoute(Route):
    """A route that only a browser takes that opens a page, and no query of GraphQL."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        accepts = Headers(scope=scope).get("accept", "")
        if "text/html" not in accepts or scope["query_string"]:
            return Match.NONE, {}
        return super().matches(scope)


@cache
def _chat() -> Document:
    scripts = [f"scripts/{name}.js" for name in _SCRIPTS]
    return Document(__name__, scripts, title="copilot-runtime", has_frames=True)


@cache
def _knowledge() -> Document:
    package = "copilot_runtime.extensions.knowledge.console"
    title = "Knowledge · copilot-runtime"
    return Document(package, ["page.js"], title=title, shared=_DATA_SCRIPTS)


@cache
def _plans() -> Document:
    return Document(
        "copilot_runtime.extensions.planner.console",
        [f"{name}.js" for name in _PLANS_SCRIPTS],
        title="Plans · copilot-runtime",
        shared=_FORMAT_SCRIPTS,
    )


@cache
def _traces() -> Document:
    return Document(
        "copilot_runtime.extensions.tracing.console",
        [f"{name}.js" for name in _TRACES_SCRIPTS],
        title="Traces · copilot-runtime",
        shared=_FORMAT_SCRIPTS,
    )


@cache
def _access() -> Document:
    return Document(
        "copilot_runtime.extensions.access.console",
        ["page.js"],
        title="Access · copilot-runtime",
        shared=_FORMAT_SCRIPTS,
    )


@cache
def _analyst() -> Document:
    return Document(
        "copilot_runtime.extensions.analyst.console",
        [f"{name}.js" for name in _ANALYST_SCRIPTS],
        title="Data · copilot-runtime",
        shared=_FORMAT_SCRIPTS,
    )
