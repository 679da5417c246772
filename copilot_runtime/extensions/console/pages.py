"""The console's pages for one runtime: their routes, and the header that all of them share."""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from pathlib import Path

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from copilot_runtime.adapters.pricing import describe_missing_prices
from copilot_runtime.app.extension import OffPage
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.console.document import Document
from copilot_runtime.extensions.console.sandbox import sandbox_route
from copilot_runtime.extensions.console.widget import widget_route

CHAT = "/chat"
"""Where the chat is besides `/`, at which an application may have a page of its own."""
_SANDBOX = "/sandbox"
_FOLDER = __name__.rpartition(".")[0]
_TITLE = "copilot-runtime"

_LIBRARIES = ("markdown-it.min.js", "purify.min.js", "highlight.min.js")
"""Files of `vendor/` that draw answers, without which `markdown.js` does not start."""

_CHAT = (
    *("format", "stream", "wire", "conversation", "markdown", "json", "findings", "frames"),
    *("a2ui/values", "a2ui/components", "a2ui/surface", "questions"),
    *("views", "tools", "talk", "footer", "threads", "media", "panel", "playground", "page"),
)
"""Scripts of the chat in the order of execution: dependencies come first."""

_SHARED = ("format", "stream", "data")
"""Scripts of all other pages."""

_ANSWERS = ("markdown", "json")
"""Scripts of other pages with answers of models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """A page of an extension in the header. `name` is the path of its REST API."""

    name: str
    title: str
    scripts: Sequence[str]
    answers: bool = False
    """`True` if the page shows answers of models, which are Markdown."""
    purpose: str
    """Description of the extension, for the page that is shown where it is off."""
    settings: str
    """Lines of `copilot.yml` that turn it on."""


_TABS: Mapping[str, Tab] = {
    "knowledge": Tab(
        name="knowledge",
        title="Knowledge",
        scripts=("page",),
        purpose="Knowledge answers from your documents, with links to its sources, and hides from "
        "each user what a policy says.",
        settings="knowledge:\n  sources: [pages]  # folders of HTML, Markdown, PDF, Word or text",
    ),
    "analyst": Tab(
        name="analyst",
        title="Data",
        scripts=("api", "table", "answer", "page"),
        answers=True,
        purpose="The data analyst answers questions about tables with numbers and charts, and "
        "shows the SQL of each.",
        settings="analyst:\n  name: analyst\n  data: [data/*.csv]  # or PostgreSQL",
    ),
    "planner": Tab(
        name="plans",
        title="Plans",
        scripts=("api", "tree", "task", "page"),
        answers=True,
        purpose="A planner splits a request into tasks, has the other agents do them, and asks a "
        "person first where that is needed.",
        settings="planner:\n  name: planner\n  needs_approval: true  # a person agrees first",
    ),
    "tracing": Tab(
        name="traces",
        title="Traces",
        scripts=("api", "spans", "waterfall", "details", "flow", "difference", "totals", "page"),
        purpose="Traces show what each answer did: its requests to models, its tools, its time, "
        "its tokens and its cost.",
        settings="telemetry:\n  enabled: true\n  store: sqlite:.copilot/traces.db  # or memory",
    ),
    "access": Tab(
        name="access",
        title="Access",
        scripts=("page",),
        purpose="Nobody signs in here, so all who reach this server share its threads. Access "
        "gives users, roles, limits, API keys and an audit log.",
        settings="access:\n  authenticate: [api_keys]  # or jwt, proxy, service_tokens\n"
        "# a key to sign in with: copilot-runtime operate keys create ann --role operator",
    ),
}
"""The pages of extensions, in the order of the header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """The values that all pages of a runtime share.

    `endpoint` is the path of the runtime, relative to the app, and `pages` the path of the page of
    each extension that has one. `logo` is a data URL; empty for that of this package.
    """

    endpoint: str
    pages: Mapping[str, str] = field(default_factory=dict[str, str])
    keeps_traces: bool = False
    """Whether users can rate answers and open their traces; else no page leads to traces."""
    title: str = _TITLE
    logo: str = ""

    def fill(self, request: Request, current: str) -> dict[str, str]:
        """Return the value of each placeholder of the frame, as HTML, for a page of an extension.

        An empty `current` is the chat, and an unknown one no page.
        """
        root = request.scope.get("root_path", "").rstrip("/")
        links = {
            name: root + path
            for name, path in self.pages.items()
            if path and (name != "tracing" or self.keeps_traces)
        }
        tabs = [("", root + CHAT, "Chat")]
        tabs += [(name, links[name], tab.title) for name, tab in _TABS.items() if name in links]
        tab = _TABS.get(current)
        return {
            "__ENDPOINT__": escape(root + self.endpoint or "/"),
            "__HOME__": escape(f"{root}/"),
            "__PAGES__": escape(json.dumps({"chat": root + CHAT, **links})),
            "__SANDBOX__": escape(root + _SANDBOX),
            "__BRAND__": escape(self.title),
            "__NO_PRICES__": escape(describe_missing_prices()),
            "__TITLE__": escape(f"{tab.title} · {self.title}" if tab else self.title),
            "<!-- tabs -->": "".join(
                f'<a href="{escape(path)}"{_CURRENT if name == current else ""}>{title}</a>'
                for name, path, title in tabs
            ),
            "<!-- logo -->": f'<img src="{escape(self.logo)}" alt="">' if self.logo else _LOGO,
            "__ICON__": escape(self.logo) or _ICON,
        }


_CURRENT = ' aria-current="page"'
_LOGO = (
    '<svg viewBox="0 0 16 16" aria-hidden="true"><rect width="16" height="16" rx="4.5"/>'
    '<path d="M4 5h8M4 8h5M4 11h7"/></svg>'
)
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Crect width='16' height='16' rx='4.5' fill='%230f766e'/%3E"
    "%3Cpath d='M4 5h8M4 8h5M4 11h7' stroke='%23fff' stroke-width='1.6' stroke-linecap='round'/%3E"
    "%3C/svg%3E"
)


def read_logo(file: str) -> str:
    """Return an image file as a data URL, or an empty string for no file.

    Raises `ConfigurationFailed` if it cannot be read.
    """
    if not file:
        return ""
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise ConfigurationFailed(
            f"The logo {file!r} cannot be read: {error.strerror}.",
            hint="Write the path of an .svg or .png file in console.logo.",
        ) from None
    kind = "svg+xml" if file.lower().endswith(".svg") else "png"
    return f"data:image/{kind};base64,{b64encode(content).decode()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPage:
    """The values of the chat's page."""

    suggestions: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """Example questions for agents, by name."""
    introduction: str = ""
    """The adapter's note for developers."""
    is_demo: bool = False
    """Whether no program is served, but the demo: the page offers it tools to try."""
    history: str = "client"
    """The setting, which decides how a question is edited."""
    draws_surfaces: bool = False
    """Whether the page offers its A2UI components to agents."""


def build_pages(shell: Shell, chat: ChatPage) -> Sequence[BaseRoute]:
    """Return the routes of all pages of a runtime, which link to each other.

    They must precede the runtime's own routes: if clients also use `/`, the page matches only
    requests of browsers.
    """
    return [
        *(_data_route(shell, name, path) for name, path in shell.pages.items() if name in _TABS),
        *(_off_route(shell, name) for name in _TABS if not shell.pages.get(name)),
        _missing_route(shell),
        sandbox_route(_SANDBOX),
        widget_route(shell.endpoint, shell.title),
        console_route(shell, chat, CHAT),
        console_route(shell, chat),
    ]


def console_route(shell: Shell, chat: ChatPage, path: str = "/") -> Route:
    """Return a route of the chat.

    The endpoint may have its path: then browsers get the page, and other requests go to the
    runtime.
    """
    values = {
        "__SUGGESTIONS__": escape(json.dumps({**chat.suggestions})),
        "__INTRODUCTION__": escape(chat.introduction),
        "__DEMO__": "yes" if chat.is_demo else "",
        "__HISTORY__": chat.history,
        "__KEEPS_TRACES__": "yes" if shell.pages.get("tracing") and shell.keeps_traces else "",
        "__SURFACES__": "yes" if chat.draws_surfaces else "",
    }

    async def answer(request: Request) -> Response:
        return _open_chat().respond(request, values | shell.fill(request, ""))

    kind = _BrowserRoute if path.rstrip("/") == shell.endpoint.rstrip("/") else Route
    return kind(path, answer, methods=["GET"], name="console")


def _data_route(shell: Shell, extension: str, path: str) -> Route:
    """Return the route of an extension's page.

    The page itself contains no data: it sends requests with the user's credentials. If the
    extension's REST API has the same path, the page matches only requests of browsers.
    """
    name = _TABS[extension].name

    async def answer(request: Request) -> Response:
        return _open_document(extension).respond(request, shell.fill(request, extension))

    kind = _BrowserRoute if f"{shell.endpoint.rstrip('/')}/{name}" == path else Route
    return kind(path, answer, methods=["GET"], name=name)


def _off_route(shell: Shell, extension: str) -> Route:
    """Return the route of a page whose extension is off, which says how to turn it on."""
    tab = _TABS[extension]
    values = {
        "__NAME__": tab.title,
        "__PURPOSE__": escape(tab.purpose),
        "__SETTINGS__": escape(tab.settings),
    }

    async def answer(request: Request) -> Response:
        response = _open_off().respond(request, shell.fill(request, extension) | values)
        response.status_code = 404
        return response

    path, name = f"/{tab.title.lower()}", f"no {tab.name}"
    return OffPage(path, answer, methods=["GET"], name=name)


def _missing_route(shell: Shell) -> Route:
    """Return the route of all paths that no other route has."""

    async def answer(request: Request) -> Response:
        response = _open_missing().respond(request, shell.fill(request, "missing"))
        response.status_code = 404
        return response

    return OffPage("/{page:path}", answer, methods=["GET"], name="no page")


class _BrowserRoute(Route):
    """A route that matches only browsers that open a page, and no GraphQL queries."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        accepts = Headers(scope=scope).get("accept", "")
        if "text/html" not in accepts or scope["query_string"]:
            return Match.NONE, {}
        return super().matches(scope)


@cache
def _open_chat() -> Document:
    scripts = [f"scripts/{name}.js" for name in _CHAT]
    return Document(_FOLDER, scripts, libraries=_LIBRARIES, has_frames=True)


@cache
def _open_off() -> Document:
    return Document(_FOLDER, [], page="off")


@cache
def _open_missing() -> Document:
    return Document(_FOLDER, [], page="missing")


@cache
def _open_document(extension: str) -> Document:
    tab = _TABS[extension]
    return Document(
        f"copilot_runtime.extensions.{extension}.console",
        [f"{name}.js" for name in tab.scripts],
        shared=[f"scripts/{name}.js" for name in (*_SHARED, *(_ANSWERS if tab.answers else ()))],
        libraries=_LIBRARIES if tab.answers else (),
    )
