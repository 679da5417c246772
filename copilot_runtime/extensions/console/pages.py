"""The console's pages for one runtime: their routes and documents, and the sandbox for frames."""

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from hashlib import sha256
from html import escape
from importlib import resources
from importlib.resources.abc import Traversable

from starlette.datastructures import Headers, QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope


def build_pages(
    path: str,
    pages: Mapping[str, str],
    *,
    suggestions: Sequence[str] = (),
    keeps_traces: bool = False,
    draws_surfaces: bool = False,
) -> Sequence[BaseRoute]:
    """Return the routes of all pages of the runtime at `path`, which link to each other.

    `pages` has the path of the page of each extension that has one.
    They must precede the runtime's own routes: if clients also use `/`, the page matches only
    requests of browsers.
    """
    traces = pages.get("tracing", "") if keeps_traces else ""
    return [
        *(
            data_route(name, path, pages[name], traces_path=traces)
            for name in _DATA_PAGES
            if pages.get(name)
        ),
        sandbox_route("/sandbox"),
        console_route(
            path,
            suggestions=suggestions,
            pages=pages,
            keeps_traces=keeps_traces,
            sandbox_path="/sandbox",
            draws_surfaces=draws_surfaces,
        ),
    ]


_DOMAIN = re.compile(
    r"(?:https?|wss?)://(?:\*\.)?[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::\d{1,5})?", re.I
)
"""An origin in a content security policy, without characters that could end or extend a directive.
"""

_MOST_DOMAINS = 30
_LONGEST = 253
"""Maximum length of an origin, in characters."""


def sandbox_route(path: str = "/sandbox") -> Route:
    """Return the route of the document in which frames display generated pages and MCP apps.

    A frame with `srcdoc` would inherit the policy of the chat page, which allows only its own
    scripts. This document has its own policy and an opaque origin: it can access neither the page
    around it nor this server with the user's credentials. The page sends it its content.

    Its query lists the origins that the content may access, as an MCP app declares them: `resource`
    for scripts, styles, images, fonts and media, `connect` for requests, `frame` for frames and
    `base` for relative URLs. By default, nothing can be fetched.
    """

    async def answer(request: Request) -> Response:
        headers = {
            "content-security-policy": build_policy(request.query_params),
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cache-control": "no-cache",
        }
        return Response(_document(), media_type="text/html", headers=headers)

    return Route(path, answer, methods=["GET"], name="sandbox")


def build_policy(query: QueryParams) -> str:
    """Return the content security policy that permits the origins in a query."""
    resources = _join(["'unsafe-inline'", *_read_domains(query, "resource")])
    media = _join(["data:", "blob:", *_read_domains(query, "resource")])
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {resources}",
            f"style-src {resources}",
            f"img-src {media}",
            f"font-src {media}",
            f"media-src {media}",
            f"connect-src {_join(_read_domains(query, 'connect'))}",
            f"frame-src {_join(_read_domains(query, 'frame'))}",
            f"base-uri {_join(_read_domains(query, 'base'))}",
            "form-action 'none'",
            "frame-ancestors 'self'",
            "sandbox allow-scripts allow-forms",
        ]
    )


def _read_domains(query: QueryParams, key: str) -> Sequence[str]:
    """Return the valid origins in a query."""
    values = query.getlist(key)[:_MOST_DOMAINS]
    return [value for value in values if len(value) <= _LONGEST and _DOMAIN.fullmatch(value)]


def _join(sources: Sequence[str]) -> str:
    return " ".join(sources) or "'none'"


@cache
def _document() -> bytes:
    return resources.files(_FOLDER).joinpath("sandbox.html").read_bytes()


_CHAT_SCRIPTS = (
    "wire",
    "conversation",
    "markdown",
    "findings",
    "frames",
    "a2ui/values",
    "a2ui/components",
    "a2ui/surface",
    "views",
    "talk",
    "threads",
    "media",
    "page",
)
"""Scripts in the order of execution: dependencies come first."""

_DATA_PAGES: Mapping[str, tuple[str, str, Sequence[str]]] = {
    "analyst": ("analyst", "Data", ("api", "table", "answer", "page")),
    "knowledge": ("knowledge", "Knowledge", ("page",)),
    "access": ("access", "Access", ("page",)),
    "tracing": (
        *("traces", "Traces"),
        ("api", "spans", "waterfall", "details", "flow", "difference", "page"),
    ),
    "planner": ("plans", "Plans", ("api", "tree", "task", "page")),
}
"""The path of each extension's REST API, the title of its page, and the page's scripts."""

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
    *,
    suggestions: Sequence[str] = (),
    pages: Mapping[str, str] | None = None,
    keeps_traces: bool = False,
    sandbox_path: str = "",
    draws_surfaces: bool = False,
) -> Route:
    """Return the route of the chat page for the runtime at `endpoint_path`.

    The path is relative to the app; its mount path is taken from the request. It may be empty: then
    browsers get the page, and other requests go to the runtime. `suggestions` are example questions
    for the plain chat. The page links to the `pages` of extensions, by their names. If the server
    `keeps_traces`, users can rate answers and open their traces. With the `sandbox_path` of a
    `sandbox_route`, the page displays MCP apps and generated pages. If it `draws_surfaces`, it
    offers its A2UI components to agents.
    """
    offered = json.dumps(list(suggestions))
    paths = pages or {}

    async def answer(request: Request) -> Response:
        root = request.scope.get("root_path", "").rstrip("/")

        def link(path: str) -> str:
            return root + path if path else ""

        values = {
            "__ENDPOINT__": root + endpoint_path or "/",
            "__SUGGESTIONS__": offered,
            "__KNOWLEDGE__": link(paths.get("knowledge", "")),
            "__PLANS__": link(paths.get("planner", "")),
            "__TRACES__": link(paths.get("tracing", "")),
            "__ANALYST__": link(paths.get("analyst", "")),
            "__ACCESS__": link(paths.get("access", "")),
            "__KEEPS_TRACES__": "yes" if paths.get("tracing") and keeps_traces else "",
            "__SANDBOX__": link(sandbox_path),
            "__SURFACES__": "yes" if draws_surfaces else "",
        }
        return _open_chat().respond(request, values)

    kind = Route if endpoint_path else _BrowserRoute
    return kind("/", answer, methods=["GET"], name="console")


def data_route(extension: str, endpoint_path: str, path: str, *, traces_path: str = "") -> Route:
    """Return the route of an extension's page for the runtime at `endpoint_path`.

    The page itself contains no data: it sends requests with the user's credentials. If the
    extension's REST API has the same path, the page matches only requests of browsers.
    """
    name, _, _ = _DATA_PAGES[extension]

    async def answer(request: Request) -> Response:
        root = request.scope.get("root_path", "").rstrip("/")
        values = {
            "__ENDPOINT__": root + endpoint_path or "/",
            "__HOME__": f"{root}/",
            "__TRACES__": root + traces_path if traces_path else "",
        }
        return _open_document(extension).respond(request, values)

    kind = _BrowserRoute if f"{endpoint_path.rstrip('/')}/{name}" == path else Route
    return kind(path, answer, methods=["GET"], name=name)


class _BrowserRoute(Route):
    """A route that matches only browsers that open a page, and no GraphQL queries."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        accepts = Headers(scope=scope).get("accept", "")
        if "text/html" not in accepts or scope["query_string"]:
            return Match.NONE, {}
        return super().matches(scope)


@cache
def _open_chat() -> Document:
    scripts = [f"scripts/{name}.js" for name in _CHAT_SCRIPTS]
    return Document(_FOLDER, scripts, title="copilot-runtime", has_frames=True)


@cache
def _open_document(extension: str) -> Document:
    _, title, scripts = _DATA_PAGES[extension]
    return Document(
        f"copilot_runtime.extensions.{extension}.console",
        [f"{name}.js" for name in scripts],
        title=f"{title} · copilot-runtime",
        shared=["scripts/data.js"],
    )
