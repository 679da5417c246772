"""Forward requests of apps in frames to their MCP servers."""

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, cast

from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import CopilotError, LimitExceeded
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonObject, as_object, as_text
from copilot_runtime.extensions.generative_ui.mcp_apps.servers import AppServers, describe_server
from copilot_runtime.extensions.generative_ui.options import McpAppServer
from copilot_runtime.telemetry import Span, trace_block
from copilot_runtime.telemetry.rpc import name_tool, start_mcp_request_span
from copilot_runtime.transports.agui.decode import PROXIED_REQUEST

_FAILURE = "Error: MCP request failed"
_NOT_FOR_APPS: JsonObject = {
    "error": "Error: this tool is not for apps.",
    # also the result of a tool, because apps read its content without checking for errors
    "content": [{"type": "text", "text": "Error: this tool is not for apps."}],
    "isError": True,
}
_REFUSAL = "refused"
_TOOL_ERROR = "tool_error"

logger = logging.getLogger(__name__)


class AppProxy:
    """Forwards requests of apps, as far as their servers and the operator allow.

    These requests are not stored, and agents do not see them.
    """

    def __init__(self, servers: AppServers) -> None:
        self._servers = servers
        self._quota = RequestQuota(servers.options.max_requests)

    async def answer(self, run: RunInput, client: str = "") -> JsonObject:
        """Return the result of a request, or an object with an `error` if it is refused or fails.

        Anonymous users share the quota of `client`, the address of the request.
        """
        request = run.properties.get(PROXIED_REQUEST)
        if _is_too_large(request, self._servers.options.max_request_bytes):
            return _refuse("The request of the app is too large.")
        fields: Mapping[str, Any] = as_object(request)
        id, token = fields.get("serverId"), fields.get("serverHash")
        method, called = fields.get("method"), "an unknown server"
        try:
            server = await self._servers.find_server(run, as_text(id), as_text(token))
            if server is None:
                return _refuse(f"Unknown server: {_describe(id or token)}")
            called = describe_server(server)
            match method:
                case "notifications/message":
                    return {"success": True}
                case "ping" | "resources/read" | "tools/call":
                    pass
                case _:
                    name = _describe(method)
                    return _refuse(f"Error: MCP method not allowed for UI proxy: {name}")
            user = f"client\0{client}" if run.user is None else f"user\0{run.user}"
            async with self._quota.enter(user):
                return await self._trace(server, method, as_object(fields.get("params")), run)
        except QuotaExceeded as error:
            return _refuse(error.message)
        except (CopilotError, TimeoutError, OSError) as error:
            # error details of a server are not for frontends
            reason = error or "It took too long."
            logger.warning("A request of an app of %s failed: %s", called, reason)
            is_too_large = isinstance(error, LimitExceeded)
            return _refuse(error.public if is_too_large else _FAILURE)

    async def _trace(
        self, server: McpAppServer, method: str, params: JsonObject, run: RunInput
    ) -> JsonObject:
        """Return the answer to a request, recorded in a span without a parent run."""
        label, url = server.server.label, server.server.url
        telemetry = self._servers.telemetry
        with trace_block(
            start_mcp_request_span(telemetry, label, url, method, parent=run.parent)
        ) as span:
            async with asyncio.timeout(self._servers.options.timeout):
                answer = await self._pass_on(server, method, params, run, span)
            if answer is _NOT_FOR_APPS or ("error" in answer and "content" not in answer):
                span.fail(_REFUSAL)
            elif answer.get("isError") is True:
                span.fail(_TOOL_ERROR)
            return answer

    async def _pass_on(
        self, server: McpAppServer, method: str, params: JsonObject, run: RunInput, span: Span
    ) -> JsonObject:
        options = self._servers.options
        if method == "ping":
            await self._servers.ping(server, run)
            return {}
        if method == "resources/read":
            uri = as_text(params.get("uri"))
            if not is_allowed(uri, options.uris):
                return _refuse("Error: this resource is not for apps.")
            return await self._servers.read_resource(server, uri, run)
        name, values = as_text(params.get("name")), params.get("arguments", {})
        if not name or not await self._may_call(server, name, run):
            return _NOT_FOR_APPS
        name_tool(span, name)
        if not isinstance(values, dict):
            return _refuse(_FAILURE)
        return await self._servers.call_tool(server, name, cast(JsonObject, values), run)

    async def _may_call(self, server: McpAppServer, name: str, run: RunInput) -> bool:
        """Return `True` if the server and the operator allow frames to call a tool."""
        if self._servers.options.tools == "all":
            return name in await self._servers.list_names(server, run)
        tools = await self._servers.list_tools(server, run)
        return any(tool.tool == name and tool.is_for_apps for tool in tools)


def _is_too_large(request: Any, most: int) -> bool:
    try:
        return len(dumps(request)) > most
    except (ValueError, RecursionError):
        return True


def _describe(value: Any) -> str:
    """Return a value of a request for a message, truncated."""
    if value is None:
        return "undefined"
    return (value if isinstance(value, str) else dumps(value).decode())[:100]


def _refuse(message: str) -> JsonObject:
    return {"error": message}


_LONGEST = 2_000
_PLAIN = re.compile(r"[!-\[\]-~]+")
"""Printable ASCII without spaces and backslashes, which programs interpret differently."""

_DOTS = re.compile(r"(?:^|[/?#])(?:\.|%2e){1,2}(?:[/?#;]|$)", re.IGNORECASE)
_ENCODED_SLASH = re.compile(r"%(?:2f|5c|25|[01][0-9a-f]|7f)", re.IGNORECASE)
"""Escapes that decode to a slash, a backslash, a percent sign or a control character."""


def is_allowed(uri: str, prefixes: Sequence[str]) -> bool:
    """Return `True` if a URI starts with one of `prefixes`, however a server may interpret it.

    A prefix must end at the boundary of a URI component: `https://a.example` does not allow
    `https://a.example.org`. A URI with `..` segments or encoded slashes is never allowed.
    """
    if len(uri) > _LONGEST or not _PLAIN.fullmatch(uri):
        return False
    if _DOTS.search(uri) or _ENCODED_SLASH.search(uri):
        return False
    return any(_begins_with(uri, prefix) for prefix in prefixes)


def _begins_with(uri: str, prefix: str) -> bool:
    rest = uri.removeprefix(prefix)
    if not uri.startswith(prefix):
        return False
    return not rest or prefix[-1:] in ("/", ":", "") or rest[0] in "/?#"


_AT_ONCE = 8
"""Maximum number of concurrent requests per user."""

_MOST_PENDING = 24
"""Maximum number of queued requests per user."""

_MOST_USERS = 10_000


class QuotaExceeded(LimitExceeded):
    """A user has sent too many requests."""


class RequestQuota:
    """Limits the request rate and concurrency of each user (token bucket)."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._users: OrderedDict[str, UserQuota] = OrderedDict()

    def enter(self, user: str) -> "UserQuota":
        """Count a request, and return its context manager. Raises `QuotaExceeded`."""
        quota = self._users.get(user)
        if quota is None:
            self._forget_oldest()
            quota = self._users[user] = UserQuota(self._per_second)
        self._users.move_to_end(user)
        quota.count()
        return quota

    def _forget_oldest(self) -> None:
        """Evict idle users to make room. Raises `QuotaExceeded` if the oldest is not idle.

        Eviction does not reset a quota: only users with a full bucket are evicted.
        """
        while len(self._users) >= _MOST_USERS:
            oldest = next(iter(self._users))
            if not self._users[oldest].is_idle:
                raise QuotaExceeded("Too many people use MCP apps. Try again in a second.")
            del self._users[oldest]


class UserQuota:
    """The quota of a user. Entering it waits for a concurrency slot."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._most = max(1.0, 2 * per_second)
        self._tokens = self._most
        self._last = monotonic()
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._pending = 0

    @property
    def is_idle(self) -> bool:
        """`True` if it can be discarded: no request is pending, and the bucket is full."""
        return not self._pending and self._refill() >= self._most

    def count(self) -> None:
        """Take a token.

        Raises `QuotaExceeded` if none is left, or too many requests are pending.
        """
        self._tokens = self._refill()
        self._last = monotonic()
        if self._tokens < 1 or self._pending >= _AT_ONCE + _MOST_PENDING:
            raise QuotaExceeded("Too many requests of MCP apps. Try again in a second.")
        self._tokens -= 1

    def _refill(self) -> float:
        return min(self._most, self._tokens + (monotonic() - self._last) * self._per_second)

    async def __aenter__(self) -> None:
        self._pending += 1
        try:
            await self._places.acquire()
        except BaseException:
            self._pending -= 1
            raise

    async def __aexit__(self, *_: object) -> None:
        self._pending -= 1
        self._places.release()
