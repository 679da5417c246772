"""The console's routes for one runtime, and the sandbox for generated pages and MCP apps.

The chat page's content security policy allows only its own scripts, and a frame with `srcdoc` would
inherit it. Frames therefore load a document with its own policy and an opaque origin: it can access
neither the page around it nor this server with the user's credentials. The page sends it its
content.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from copilot_runtime.extensions.console.routes import (
    access_route,
    analyst_route,
    console_route,
    knowledge_route,
    plans_route,
    traces_route,
)


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
    page, plans, data = (pages.get(name, "") for name in ("knowledge", "planner", "analyst"))
    access, traces = pages.get("access", ""), pages.get("tracing", "")
    chat = console_route(
        path,
        suggestions=suggestions,
        knowledge_path=page,
        plans_path=plans,
        traces_path=traces,
        analyst_path=data,
        access_path=access,
        keeps_traces=keeps_traces,
        sandbox_path="/sandbox",
        draws_surfaces=draws_surfaces,
    )
    trace_page = traces if keeps_traces else ""
    return [
        *([analyst_route(path, data)] if data else []),
        *([knowledge_route(path, page)] if page else []),
        *([access_route(path, access)] if access else []),
        *([traces_route(path, traces)] if traces else []),
        *([plans_route(path, plans, traces_path=trace_page)] if plans else []),
        sandbox_route("/sandbox"),
        chat,
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
    """Return the route of the sandbox document.

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
    folder = resources.files(__name__.rpartition(".")[0])
    return folder.joinpath("sandbox.html").read_bytes()
