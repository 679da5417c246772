"""The page to try a runtime at: one HTML document, a client of AG-UI.

It is written in parts, a page, a style and some scripts, and served as one: nothing else has to
be found, and the policy can name the very style and the very script that may be used.
"""

import json
import re
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib import resources

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

_ENDPOINT = "__ENDPOINT__"
_SUGGESTIONS = "__SUGGESTIONS__"
_STYLE = "/* page.css */"
_SCRIPT = "/* scripts */"
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


def console_route(endpoint_path: str, path: str = "/", *, suggestions: Sequence[str] = ()) -> Route:
    """Return the route of a page that talks with the runtime at `endpoint_path`.

    Both paths are those inside the app; where it is mounted comes from the request. They may be
    the same: then the page is for browsers, and all other requests are for the runtime. The
    `suggestions` are what the page offers to ask the plain chat, beside what it offers everybody.
    """
    offered = escape(json.dumps(list(suggestions)))

    async def answer(request: Request) -> Response:
        endpoint = request.scope.get("root_path", "").rstrip("/") + endpoint_path or "/"
        page = _template().replace(_ENDPOINT, escape(endpoint)).replace(_SUGGESTIONS, offered)
        document = page.encode()
        headers = {
            "content-security-policy": _policy(),
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cache-control": "no-cache",  # keep it, but ask whether it changed
            "etag": f'"{sha256(document).hexdigest()[:32]}"',
        }
        etags = request.headers.get("if-none-match", "").replace("W/", "")
        if headers["etag"] in [tag.strip() for tag in etags.split(",")]:
            return Response(status_code=304, headers=headers)
        return Response(document, media_type="text/html", headers=headers)

    kind = _BrowserRoute if endpoint_path == path.rstrip("/") else Route
    return kind(path, answer, methods=["GET"], name="console")


class _BrowserRoute(Route):
    """A route that only a browser takes that opens a page, and no query of GraphQL."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        accepts = Headers(scope=scope).get("accept", "")
        if "text/html" not in accepts or scope["query_string"]:
            return Match.NONE, {}
        return super().matches(scope)


@cache
def _template() -> str:
    """Return the whole document, but for where its endpoint is."""
    scripts = "\n".join(_part(f"scripts/{name}.js") for name in _SCRIPTS)
    page = _part("page.html").replace(_STYLE, f"\n{_part('page.css')}")
    return page.replace(_SCRIPT, f'\n"use strict";\n{scripts}')


def _part(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


@cache
def _policy() -> str:
    """Allow the page's own style and script by their hashes, its own server, and nothing else."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {_hash_of('script')}",
            f"style-src {_hash_of('style')}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )


def _hash_of(element: str) -> str:
    found = re.search(rf"<{element}>(.*?)</{element}>", _template(), re.DOTALL)
    if found is None:
        raise ValueError(f"page.html has no <{element}>")
    return f"'sha256-{b64encode(sha256(found[1].encode()).digest()).decode()}'"
