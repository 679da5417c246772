"""Shared state of both kinds of thread subscriptions."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from starlette.types import Receive

from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.security.loopback import is_forwarded, is_loopback
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.streaming import find_cycle
from copilot_runtime.transports.thread_push.join_tokens import JoinTokens, OpenStreams

SOCKET = "realtime"
"""Path below a runtime's URL at which CopilotKit's client opens its socket (it appends
`/websocket`)."""


class ThreadPush:
    """The conversations, the open streams, and the tokens for sockets.

    `url` is a runtime's URL for WebSockets, such as `wss://example.com/graphql`; `off` disables
    them, and an empty one is derived from the request. `is_own_name` returns `True` for a `Host` of
    this machine.
    """

    def __init__(
        self,
        conversations: Conversations,
        streams: OpenStreams,
        tokens: JoinTokens,
        *,
        is_own_name: Callable[[str], bool],
        url: str = "",
    ) -> None:
        self.conversations = conversations
        self.streams = streams
        self.tokens = tokens
        self._is_own_name = is_own_name
        self._url = url
        self._cycles: set[Any] = set()
        conversations.changes.is_ending = self._is_server_ending

    @property
    def offers_sockets(self) -> bool:
        """`True` unless WebSockets are disabled."""
        return self._url != "off"

    @contextmanager
    def hold(self, receive: Receive) -> Generator[None]:
        """Register an open stream, which a stopping server would wait for."""
        cycle = find_cycle(receive)
        if getattr(cycle, "keep_alive", False):
            self._cycles.add(cycle)
        try:
            yield
        finally:
            self._cycles.discard(cycle)

    def _is_server_ending(self) -> bool:
        """Return `True` if the server waits for streams: uvicorn disables their keep-alive."""
        return any(not cycle.keep_alive for cycle in islice(self._cycles, 1))

    def find_url(self, request: Request) -> str:
        """Return the URL of sockets for the client of a request, or an empty string.

        The URL is only derived for clients on this machine. A remote client may be behind a proxy
        with its own path and scheme, which may not support WebSockets: a setting has the URL then.
        A page behind a proxy of this machine that rewrites paths, such as that of Next.js, gets
        the address at which the server listens.
        """
        if self._url:
            return "" if not self.offers_sockets else f"{self._url.rstrip('/')}/{SOCKET}"
        host = request.headers.get("host", "")
        peer = (request.scope.get("client") or ("",))[0] or ""
        if not self._is_own_name(host) or not is_loopback(peer):
            return ""
        if is_forwarded(request.headers):
            host = self._find_address(request)
        if not host:
            return ""
        scheme = "wss" if request.scope.get("scheme") == "https" else "ws"
        raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
        path = raw.partition(b"?")[0].decode("latin-1").rstrip("/")
        return f"{scheme}://{host}{path.removesuffix(request.path).rstrip('/')}/{SOCKET}"

    def _find_address(self, request: Request) -> str:
        """Return the address of this server for a page that a proxy of this machine serves.

        Empty if the page may be elsewhere, or the address is unknown.
        """
        headers = request.headers
        if any(name in headers for name in ("forwarded", "via", "x-real-ip")):
            return ""
        clients = headers.get("x-forwarded-for", "127.0.0.1").split(",")
        if not self._is_own_name(headers.get("x-forwarded-host", "")) or not all(
            is_loopback(one.strip()) for one in clients
        ):
            return ""
        address, port = request.scope.get("server") or ("", None)
        if port is None or not is_loopback(address):
            return ""
        return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
