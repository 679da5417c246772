"""What all ways to be told of changes share."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from starlette.types import Receive

from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.security.loopback import is_forwarded, is_loopback
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.streaming import find_cycle
from copilot_runtime.transports.thread_push.join_tokens import JoinTokens
from copilot_runtime.transports.thread_push.open_streams import OpenStreams

SOCKET = "realtime"
"""Below the URL of a runtime: where CopilotKit's client opens a socket, at `/websocket`."""


class ThreadPush:
    """The threads, the streams that are open, and the tokens for sockets.

    `url` is the URL of a runtime for WebSockets, as in `wss://example.com/graphql`; `off` offers
    none, and an empty one is found out. `is_own_name` says whether a `Host` is of this machine.
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
        """Whether there are any."""
        return self._url != "off"

    @contextmanager
    def hold(self, receive: Receive) -> Generator[None]:
        """Note that a stream is open, for which a server would wait before it ends."""
        cycle = find_cycle(receive)
        if getattr(cycle, "keep_alive", False):
            self._cycles.add(cycle)
        try:
            yield
        finally:
            self._cycles.discard(cycle)

    def _is_server_ending(self) -> bool:
        """Return whether the server waits for the streams: uvicorn takes their keep-alive away."""
        return any(not cycle.keep_alive for cycle in islice(self._cycles, 1))

    def find_url(self, request: Request) -> str:
        """Return the URL of sockets for the client of a request; empty for none.

        It is found out on one machine. Elsewhere there may be a proxy, which has a path and a
        scheme of its own, and may let no WebSockets through: a setting names it.
        """
        if self._url:
            return "" if not self.offers_sockets else f"{self._url.rstrip('/')}/{SOCKET}"
        host = request.headers.get("host", "")
        peer = (request.scope.get("client") or ("",))[0] or ""
        is_near = self._is_own_name(host) and is_loopback(peer)
        if not is_near or is_forwarded(request.headers):
            return ""
        scheme = "wss" if request.scope.get("scheme") == "https" else "ws"
        raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
        path = raw.partition(b"?")[0].decode("latin-1").rstrip("/")
        return f"{scheme}://{host}{path.removesuffix(request.path).rstrip('/')}/{SOCKET}"


def make_thread_sockets(services: Any) -> Any:
    """Return the transport of WebSockets, which is imported when a runtime offers them."""
    from copilot_runtime.transports.thread_push.endpoint import ThreadSocketEndpoint

    return ThreadSocketEndpoint(services)
