"""The sandbox: the document in which frames display generated pages and MCP apps."""

import re
from collections.abc import Sequence
from functools import cache
from importlib import resources

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

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
    return resources.files(__name__.rpartition(".")[0]).joinpath("sandbox.html").read_bytes()
