"""Serve all clients at one URL: authenticate each request and select its transport.

GraphQL for CopilotKit v1 and AG-UI's envelopes and runs are at the URL itself; AG-UI's REST routes,
a remote endpoint for Node, an MCP server, and transports of applications are below it.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from re import Pattern
from typing import Any

from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from copilot_runtime.api.identity import set_current_identity
from copilot_runtime.api.run_input import CURRENT_PATH
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, LimitExceeded
from copilot_runtime.base.outages import log_failures
from copilot_runtime.base.secrets import carry_headers
from copilot_runtime.security.cors import Cors
from copilot_runtime.security.loopback import LoopbackGuard
from copilot_runtime.transports.auth import Authenticator, Unauthorized
from copilot_runtime.transports.body import BadRequest, ClientGone
from copilot_runtime.transports.request import Request, decode_headers
from copilot_runtime.transports.streaming import WriteTimeout
from copilot_runtime.transports.transport import Refusal, RequestPolicy, Transport, error_body

logger = logging.getLogger(__name__)

LONGEST_PATH = 8 * 1024
"""Maximum length of a path, in bytes: nginx's default, and more than any percent-encoded identifier
of ours needs. Longer paths are refused before anything decodes them, which takes a millisecond
for 20 KB."""

_PREFLIGHTED = ("application/json", "application/graphql+json", "application/graphql")
"""Content types that a page may only send to another origin after a CORS preflight."""


class Router:
    """An ASGI application for the URL `base` (without its last slash) and all paths below it.

    The first of the `transports` that accepts a request responds to it. `cors` decides which
    origins may call, `pages` which origins may use the transports for programs, and `guard` refuses
    remote requests if only this machine may connect.
    """

    def __init__(
        self,
        base: str,
        transports: Sequence[Transport],
        *,
        cors: Cors,
        pages: Cors,
        guard: LoopbackGuard,
        authenticator: Authenticator,
        max_body_bytes: int,
        max_values: int,
        read_timeout: float,
        write_timeout: float,
        policies: Sequence[RequestPolicy] = (),
    ) -> None:
        self._base = base
        self._cors = cors
        self._pages = pages
        self._guard = guard
        self._authenticator = authenticator
        self._max_body_bytes = max_body_bytes
        self._max_values = max_values
        self._read_timeout = read_timeout
        self._write_timeout = write_timeout
        self._gates = [one for one in policies if type(one).before is not RequestPolicy.before]
        self._recorders = [one for one in policies if type(one).after is not RequestPolicy.after]
        paths = [(path, transport) for transport in transports for path in transport.paths]
        self._patterns = _group_patterns(paths)
        """Path patterns by first path segment; the empty key is for all other paths."""
        self._fixed = {path: [*self._match(path)] for path, _ in paths if "{" not in path}
        """The transports of paths without parameters, precomputed so that no request needs a
        search."""
        self._own_auth = frozenset(
            path for path, found in self._fixed.items() if all(one.has_own_auth for one in found)
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        carry_headers(scope["headers"])
        headers = decode_headers(scope)
        CURRENT_PATH.set(scope.get("root_path", "").rstrip("/") + self._base)
        request = Request(
            scope,
            receive,
            send,
            path=self._path_below(scope),
            headers=headers,
            response_headers=self._cors.headers(headers),
            max_body_bytes=self._max_body_bytes,
            max_values=self._max_values,
            read_timeout=self._read_timeout,
            write_timeout=self._write_timeout,
        )
        if await self._turn_away(request):
            return
        if len(request.path) > LONGEST_PATH:
            await _refuse(request, Refusal(414, {"error": "The path of the URL is too long."}))
            return
        if request.method == "OPTIONS":
            request.response_headers = self._cors.preflight(headers)
            await request.respond(204)
            return
        if not self._recorders:
            await self._answer(request)
            return
        request.record = self._record
        try:
            error = await self._answer(request)
        except BaseException as caught:
            self._record(request, caught)
            raise
        self._record(request, error or request.refusal)

    def _record(self, request: Request, error: BaseException | None) -> None:
        for policy in self._recorders:
            with log_failures(logger, "The policy %s failed", type(policy).__qualname__):
                policy.after(request, error)

    async def _answer(self, request: Request) -> BaseException | None:
        """Respond to a request, and return the error that refused or failed it, or `None`."""
        transport: Transport | None = None
        try:
            if request.path not in self._own_auth:
                request.caller = await self._authenticator.authenticate(request)
                set_current_identity(request.caller.identity)
            else:
                request.caller = self._authenticator.describe_stranger(request)
            transport = await self._find(request)
            if scope_name := transport.find_scope(request):
                request.caller.identity.require(scope_name)
            if self._gates and (error := await self._ask_gates(request)):
                await transport.limit(request, error)
                return error
            await transport(request)
        except (ClientGone, WriteTimeout):
            pass  # the client cannot receive a response any more
        except Refusal as refusal:
            await _refuse(request, await self._show(request, refusal))
            return refusal
        except Exception as error:  # also raised by hooks, stores and agents
            if transport is None or request.is_answered or request.is_websocket:
                raise
            if not isinstance(error, BadRequest | CopilotError):
                logger.exception("A request failed")
            elif isinstance(error, CopilotError) and error.message not in error.public:
                logger.error("A request failed: %s %s", error.message, error.hint or "")
            request.set_retry_after(error)
            await _refuse(request, transport.refuse(error))
            return error
        return None

    async def _show(self, request: Request, refusal: Refusal) -> Refusal:
        """Return the refusal in the form that unauthenticated clients of this path display."""
        if isinstance(refusal, Unauthorized):
            for transport in self._fixed.get(request.path, ()):
                refusal = await transport.show(request, refusal)
        return refusal

    async def _ask_gates(self, request: Request) -> LimitExceeded | None:
        """Return the error of a policy that limits the request, or `None`."""
        try:
            for policy in self._gates:
                await policy.before(request)
        except LimitExceeded as error:
            request.set_retry_after(error)
            return error
        return None

    async def turn_away(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Refuse a remote request if only this machine may connect.

        Returns `True` if it was refused.

        For requests to the surrounding application instead of this router.
        """
        return self._guard.applies(scope) and await self._turn_away(Request(scope, receive, send))

    async def _turn_away(self, request: Request) -> bool:
        if not self._guard.applies(request.scope):
            return False
        violation = self._guard.check_host(request.headers)
        if (
            violation is None and not self._cors.is_silent()
        ):  # otherwise the application's own CORS middleware decides
            violation = self._guard.check_origin(request.headers)
        if violation is None:
            return False
        body = error_body("forbidden", violation.message, "FORBIDDEN")
        request.response_headers = []
        await _refuse(request, Refusal(violation.status, body, close=(1008, "Forbidden")))
        return True

    async def _find(self, request: Request) -> Transport:
        """Return the transport for a request. Raises `Refusal`."""
        is_foreign = self._is_foreign(request)
        for transport in self._fixed.get(request.path) or self._match(request.path):
            if not await transport.accepts(request):
                continue
            origin = request.headers.get("origin") if transport.for_programs else None
            if origin is not None and not self._pages.allows(origin):
                raise Refusal(403, {"error": "Pages of browsers may not ask here."})
            if is_foreign and not transport.for_programs:
                break
            return transport
        if is_foreign:
            body = error_body("forbidden", "Pages of this origin may not ask.", "FORBIDDEN")
            raise Refusal(403, body, close=(1008, "Forbidden"))
        raise Refusal(404, {"error": "Not found"}, close=(4404, "Not found"))

    def _match(self, path: str) -> Iterator[Transport]:
        patterns = self._patterns.get(path.partition("/")[0]) or self._patterns[""]
        return (it for pattern, it in patterns if pattern.match(f"/{path}"))

    def _path_below(self, scope: Scope) -> str:
        """Return the path below the runtime's URL, still encoded; empty for the URL itself."""
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        parts = raw.split(b"?")[0].decode("latin-1").split("/")
        before = scope.get("root_path", "").rstrip("/") + self._base
        if not scope["path"].startswith(before):  # mounted by a framework that strips the path
            before = self._base
        return "/".join(parts[before.count("/") + 1 :]).rstrip("/")

    def _is_foreign(self, request: Request) -> bool:
        """Return `True` for a cross-site request that could use a person's credentials (CSRF).

        The page could not read the response, but the run and its actions would have happened.
        Requests that need a preflight have been allowed already; WebSockets have none.
        """
        origin = request.headers.get("origin")
        if origin is None or self._allows_page(request, origin):
            return False
        if request.method != "POST" and not request.is_websocket:
            return False
        if not request.is_websocket and request.content_type in _PREFLIGHTED:
            return False
        is_same_site = request.headers.get("sec-fetch-site") == "same-origin"
        return not is_same_site and origin.partition("://")[2] != request.headers.get("host")

    def _allows_page(self, request: Request, origin: str) -> bool:
        if not self._cors.allows(origin):
            return False
        host = request.headers.get("host")
        return not self._guard.applies(request.scope) or self._guard.allows_origin(origin, host)


_Patterns = list[tuple[Pattern[str], Transport]]


def _group_patterns(paths: Sequence[tuple[str, Transport]]) -> Mapping[str, _Patterns]:
    """Group the patterns by the first segment of their paths; a parameter is in every group."""
    firsts = {path: path.partition("/")[0] for path, _ in paths}
    groups: dict[str, _Patterns] = {
        first: [] for first in ("", *firsts.values()) if "{" not in first
    }
    for path, transport in paths:
        pattern = compile_path(f"/{path}")[0]
        for first, group in groups.items():
            if "{" in firsts[path] or firsts[path] == first:
                group.append((pattern, transport))
    return groups


class RouterResponse(Response):
    """A response written by the router, with `more` merged into the scope of its request."""

    def __init__(self, router: ASGIApp, more: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self._router = router
        self._more = more or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._router({**scope, **self._more}, receive, send)


async def _refuse(request: Request, refusal: Refusal) -> None:
    """Respond with a refusal, or close the WebSocket."""
    if request.is_websocket:
        code, reason = refusal.close
        await request.send({"type": "websocket.close", "code": code, "reason": reason})
    else:
        await request.respond_json(refusal.status, refusal.body, refusal.headers)


class ChatUrls:
    """Matches the URLs of chats: the runtime's URL for every client, and AG-UI's runs below it."""

    def __init__(self, path: str) -> None:
        self._urls = frozenset(spell_url(path))
        self._has_page = not path
        self._runs = f"{path}/agent/"

    def match(self, scope: Scope) -> bool:
        """Return `True` if a request is for one of these URLs.

        If the runtime is at `/`, a GET request may be a browser that opens the page.
        """
        if scope["type"] != "http" or (self._has_page and scope["method"] == "GET"):
            return False
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        return path in self._urls or path.startswith(self._runs)


def spell_url(url: str) -> list[str]:
    """Return a URL with and without a trailing slash, so that no redirect is needed."""
    if url.endswith(":path}"):
        return [url]
    return [url, f"{url}/"] if url else ["/"]


def normalize_path(path: str) -> str:
    """Return the path without a trailing slash.

    Raises `ConfigurationFailed` for a malformed path.
    """
    if not path.startswith("/"):
        raise ConfigurationFailed(
            f"The path {path!r} must begin with a slash.", hint=f"Write '/{path}'."
        )
    return path.rstrip("/")
