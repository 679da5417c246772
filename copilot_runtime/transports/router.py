"""One URL for every client: find out who sent a request, and which transport it is for.

At the URL itself are GraphQL, for CopilotKit v1, and AG-UI's envelopes and runs; below it AG-UI's
REST routes, a remote endpoint for Node, an MCP server, and what applications add.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from copilot_runtime.errors import CopilotError
from copilot_runtime.security.cors import Cors
from copilot_runtime.transports.auth import Authenticator, Unauthorized
from copilot_runtime.transports.body import BadRequest, ClientGone
from copilot_runtime.transports.request import Request, decode_headers
from copilot_runtime.transports.streaming import WriteTimeout
from copilot_runtime.transports.transport import Refusal, Transport, build_refusal

logger = logging.getLogger(__name__)

_PREFLIGHTED = ("application/json", "application/graphql+json", "application/graphql")
"""Types of body that a page may send to another origin only when that origin has agreed."""


class Router:
    """An ASGI application for the URL `base` and all below it, without its last slash.

    The first of the `transports` that accepts a request answers it. `cors` says which pages may
    call, `pages` which of them may use what is meant for programs.
    """

    def __init__(
        self,
        base: str,
        transports: Sequence[Transport],
        *,
        cors: Cors,
        pages: Cors,
        authenticator: Authenticator,
        max_body_bytes: int,
    ) -> None:
        self._base = base
        self._cors = cors
        self._pages = pages
        self._authenticator = authenticator
        self._max_body_bytes = max_body_bytes
        paths = [(path, transport) for transport in transports for path in transport.paths]
        self._patterns = [(compile_path(f"/{path}")[0], transport) for path, transport in paths]
        self._fixed = {path: [*self._match(path)] for path, _ in paths if "{" not in path}
        """The transports of the paths without parameters: no request at the URL has to search."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = decode_headers(scope)
        request = Request(
            scope,
            receive,
            send,
            path=self._path_below(scope),
            headers=headers,
            response_headers=self._cors.headers(headers),
            max_body_bytes=self._max_body_bytes,
        )
        if request.method == "OPTIONS":
            request.response_headers = self._cors.preflight(headers)
            await request.respond(204)
            return
        try:
            request.caller = await self._authenticator.authenticate(scope, headers)
            await self._dispatch(request)
        except Unauthorized as error:
            await _refuse_caller(request, error)
        except (ClientGone, WriteTimeout):
            pass  # nobody is left who could read an answer

    async def _dispatch(self, request: Request) -> None:
        transport = await self._find(request)
        if transport is not None and transport.for_programs:
            origin = request.headers.get("origin")
            if origin is not None and not self._pages.allows(origin):
                await request.respond_json(403, {"error": "Pages of browsers may not ask here."})
                return
        elif self._is_foreign(request):
            refusal = build_refusal(
                "forbidden", 403, "Pages of this origin may not ask.", "FORBIDDEN"
            )
            await _refuse(request, refusal, 1008, "Forbidden")
            return
        if transport is None:
            await _refuse(request, Refusal(404, {"error": "Not found"}), 4404, "Not found")
        else:
            await _call(transport, request)

    async def _find(self, request: Request) -> Transport | None:
        path = request.path
        for transport in self._fixed.get(path) or self._match(path):
            if await transport.accepts(request):
                return transport
        return None

    def _match(self, path: str) -> Iterator[Transport]:
        return (it for pattern, it in self._patterns if pattern.match(f"/{path}"))

    def _path_below(self, scope: Scope) -> str:
        """Return the path after our URL, still encoded, and empty for the URL itself."""
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        parts = raw.split(b"?")[0].decode("latin-1").split("/")
        before = scope.get("root_path", "").rstrip("/") + self._base
        if not scope["path"].startswith(before):  # mounted by something that strips the path
            before = self._base
        return "/".join(parts[before.count("/") + 1 :]).rstrip("/")

    def _is_foreign(self, request: Request) -> bool:
        """Return whether a page of another origin asks in a person's name, cookies and all.

        It could not read the answer, but the run and its actions would have happened. What
        needs a preflight has been allowed already; WebSockets have none.
        """
        origin = request.headers.get("origin")
        if origin is None or self._cors.allows(origin):
            return False
        if request.method != "POST" and not request.is_websocket:
            return False
        if not request.is_websocket and request.content_type in _PREFLIGHTED:
            return False
        is_same_site = request.headers.get("sec-fetch-site") == "same-origin"
        return not is_same_site and origin.partition("://")[2] != request.headers.get("host")


class RouterResponse(Response):
    """A response that the router writes, with `more` in the scope of its request."""

    def __init__(self, router: ASGIApp, more: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self._router = router
        self._more = more or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._router({**scope, **self._more}, receive, send)


async def _refuse_caller(request: Request, error: Unauthorized) -> None:
    kind = {401: "unauthorized", 403: "forbidden"}.get(error.status, "refused")
    if error.status >= 500:  # a client is not refused because the server failed
        kind = "internal_error"
    refusal = build_refusal(kind, error.status, error.message, error.code, error.headers)
    await _refuse(request, refusal, 4401, "Unauthorized")


async def _refuse(request: Request, refusal: Refusal, close_code: int, reason: str) -> None:
    """Answer with a refusal; a WebSocket is closed instead."""
    if request.is_websocket:
        await request.send({"type": "websocket.close", "code": close_code, "reason": reason})
    else:
        await request.respond_json(refusal.status, refusal.body, refusal.headers)


async def _call(transport: Transport, request: Request) -> None:
    """Answer by a transport; an error before its answer becomes the answer."""
    try:
        await transport(request)
    except (ClientGone, WriteTimeout):
        raise
    except Exception as error:  # also of hooks, stores and agents
        if request.is_answered or request.is_websocket:
            raise
        if not isinstance(error, BadRequest | CopilotError | Refusal):
            logger.exception("A request failed")
        refusal = transport.refuse(error)
        await request.respond_json(refusal.status, refusal.body, refusal.headers)
