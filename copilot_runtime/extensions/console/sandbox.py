"""The document of a frame, in which a page runs that a model or an MCP server has written.

The page around such a frame allows its own scripts alone, and a frame that it fills by `srcdoc`
would be under the same policy. So the frame loads this document, which has a policy of its own and
no origin: it can reach neither the page around it nor this server as a person who is signed in. It
gets its content from the page around it.
"""

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
"""An origin as policies know it. What could end its directive, or widen it, is not in it."""

_MOST_DOMAINS = 30
_LONGEST = 253
"""Characters of an origin."""


def sandbox_route(path: str = "/sandbox") -> Route:
    """Return the route of the document.

    Its query says what the content may reach, as an MCP app declares it: each `resource` is an
    origin for scripts, styles, images, fonts and media, each `connect` one for requests, `frame`
    for frames and `base` for relative addresses. Without any, nothing is fetched.
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
    """Return the policy of a document whose content may reach the origins of a query."""
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
    """Return the origins of a query; what is none is left out."""
    values = query.getlist(key)[:_MOST_DOMAINS]
    return [value for value in values if len(value) <= _LONGEST and _DOMAIN.fullmatch(value)]


def _join(sources: Sequence[str]) -> str:
    return " ".join(sources) or "'none'"


@cache
def _document() -> bytes:
    folder = resources.files(__name__.rpartition(".")[0])
    return folder.joinpath("sandbox.html").read_bytes()
