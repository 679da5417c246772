"""The routes and HTML documents of the console's pages."""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from hashlib import sha256
from html import escape
from importlib import resources
from importlib.resources.abc import Traversable

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

_CHAT_SCRIPTS = (
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
"""Scripts in the order of execution: dependencies come first."""

_DATA_SCRIPTS = ("scripts/data.js",)
"""Scripts that the pages *Access*, *Data*, *Knowledge*, *Plans* and *Traces* share."""
_FORMAT_SCRIPTS = (*_DATA_SCRIPTS, "scripts/format.js")
_PLANS_SCRIPTS = ("api", "tree", "questions", "task", "page")
_ANALYST_SCRIPTS = ("api", "table", "answer", "page")
_TRACES_SCRIPTS = ("api", "spans", "waterfall", "details", "flow", "difference", "page")

_FOLDER = __name__.rpartition(".")[0]
_PAGE = "<!-- page -->"
_STYLES = "/* styles */"
_SCRIPTS = "/* scripts */"
_TITLE = "__TITLE__"


class Document:
    """An HTML document: `page.html` and `page.css` of a package, with its scripts in order.

    The frame and the base style are those beside this module, shared by all pages. `shared` are
    scripts used by several pages, which run first. A document that `has_frames` may display
    documents of this server in frames. Everything is inlined, so that the content security policy
    can name the hashes of the style and the script.
    """

    def __init__(
        self,
        package: str,
        scripts: Sequence[str],
        *,
        title: str,
        shared: Sequence[str] = (),
        has_frames: bool = False,
    ) -> None:
        self._frames = "'self'" if has_frames else "'none'"
        self._shared = shared
        self._files = resources.files(package)
        self._scripts = scripts
        self._title = title

    def respond(self, request: Request, values: Mapping[str, str]) -> Response:
        """Respond with the document, with each placeholder replaced by its escaped value."""
        page = self._template
        for name, value in values.items():
            page = page.replace(name, escape(value))
        document = page.encode()
        headers = {
            "content-security-policy": self._policy,
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cache-control": "no-cache",  # cacheable after revalidation
            "etag": f'"{sha256(document).hexdigest()[:32]}"',
        }
        etags = request.headers.get("if-none-match", "").replace("W/", "")
        if headers["etag"] in [tag.strip() for tag in etags.split(",")]:
            return Response(status_code=304, headers=headers)
        return Response(document, media_type="text/html", headers=headers)

    @cached_property
    def _template(self) -> str:
        frame = resources.files(_FOLDER)
        shared = [_read(frame, name) for name in self._shared]
        scripts = "\n".join([*shared, *(_read(self._files, name) for name in self._scripts)])
        styles = _read(frame, "base.css") + _read(self._files, "page.css")
        parts = {
            _TITLE: self._title,
            _PAGE: _read(self._files, "page.html").strip(),
            _STYLES: f"\n{styles}",
            _SCRIPTS: f'\n"use strict";\n{scripts}',
        }
        template = _read(frame, "frame.html")
        for mark, part in parts.items():
            template = template.replace(mark, part)
        return template

    @cached_property
    def _policy(self) -> str:
        """Return a policy that permits the page's style and script by hash, and this server."""
        return "; ".join(
            [
                "default-src 'none'",
                f"script-src {self._hash_of('script')}",
                f"style-src {self._hash_of('style')}",
                "connect-src 'self'",
                "img-src data:",
                f"frame-src {self._frames}",
                "base-uri 'none'",
                "form-action 'none'",
                "frame-ancestors 'none'",
            ]
        )

    def _hash_of(self, element: str) -> str:
        found = re.search(rf"<{element}>(.*?)</{element}>", self._template, re.DOTALL)
        if found is None:
            raise ValueError(f"frame.html has no <{element}>")
        return f"'sha256-{b64encode(sha256(found[1].encode()).digest()).decode()}'"


def _read(files: Traversable, name: str) -> str:
    return files.joinpath(name).read_text(encoding="utf-8")


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
    """Return the route of the chat page for the runtime at `endpoint_path`.

    Both paths are relative to the app; its mount path is taken from the request. They may be equal:
    then browsers get the page, and other requests go to the runtime. `suggestions` are example
    questions for the plain chat. With a `knowledge_path`, a `plans_path`, a `traces_path`, an
    `analyst_path` and an `access_path`, the page links to those pages. If the server
    `keeps_traces`, users can rate answers and open their traces. With the `sandbox_path` of a
    `sandbox_route`, the page displays MCP apps and generated pages. If it `draws_surfaces`, it
    offers its A2UI components to agents.
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
    """Return the route of the page that browses the knowledge of the runtime at `endpoint_path`.

    The page itself contains no data: it sends requests with the user's credentials.
    """
    return _page_route(_knowledge, endpoint_path, path, "knowledge", home=home)


def plans_route(
    endpoint_path: str, path: str = "/plans", *, home: str = "/", traces_path: str = ""
) -> Route:
    """Return the route of the page that shows the plans of the runtime at `endpoint_path`.

    The page itself contains no data: it sends requests with the user's credentials. With a
    `traces_path`, it links operators to the traces page.
    """
    return _page_route(_plans, endpoint_path, path, "plans", home=home, traces_path=traces_path)


def traces_route(endpoint_path: str, path: str = "/traces", *, home: str = "/") -> Route:
    """Return the route of the page that shows the traces of the runtime at `endpoint_path`.

    The page itself contains no data: it sends requests with the user's credentials.
    """
    return _page_route(_traces, endpoint_path, path, "traces", home=home)


def analyst_route(endpoint_path: str, path: str = "/data", *, home: str = "/") -> Route:
    """Return the route of the page that answers questions about the data at `endpoint_path`.

    The page itself contains no data: it sends requests with the user's credentials.
    """
    return _page_route(_analyst, endpoint_path, path, "analyst", home=home)


def access_route(endpoint_path: str, path: str = "/access", *, home: str = "/") -> Route:
    """Return the route of the page that shows users and permissions at `endpoint_path`.

    The page itself contains no data: it sends requests with the user's credentials.
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
    """Return the route of a data page, which links back to `home`.

    If the runtime's REST API has the same path, the page matches only requests of browsers.
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
    """A route that matches only browsers that open a page, and no GraphQL queries."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        accepts = Headers(scope=scope).get("accept", "")
        if "text/html" not in accepts or scope["query_string"]:
            return Match.NONE, {}
        return super().matches(scope)


@cache
def _chat() -> Document:
    scripts = [f"scripts/{name}.js" for name in _CHAT_SCRIPTS]
    return Document(_FOLDER, scripts, title="copilot-runtime", has_frames=True)


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
