"""Apply `X-Forwarded-Proto`, such as `https` if a proxy terminates TLS."""

from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send

from copilot_runtime.security.proxies import TrustedProxies

_SCHEMES = {b"http": ("http", "ws"), b"https": ("https", "wss"), b"ws": ("http", "ws")}
_SCHEMES[b"wss"] = _SCHEMES[b"https"]
_LOOPBACK = ("127.0.0.0/8", "::1")


class ForwardedScheme:
    """ASGI middleware that sets a request's scheme from `X-Forwarded-Proto` of trusted proxies.

    Proxies on the loopback interface are always trusted. The runtime's URLs then have the scheme
    that clients use. Unlike uvicorn's middleware, it keeps the client's address: a setting decides
    whose `X-Forwarded-For` is trusted, because a client can send that header through a proxy that
    passes it on.
    """

    def __init__(self, app: ASGIApp, proxies: Collection[str]) -> None:
        self._app = app
        self._proxies = TrustedProxies([*_LOOPBACK, *proxies])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        for name, value in scope.get("headers", ()):
            if name == b"x-forwarded-proto" and value in _SCHEMES:
                client = scope.get("client")
                if self._proxies.includes(client[0] if client and client[0] else "unix"):
                    scope["scheme"] = _SCHEMES[value][scope["type"] == "websocket"]
        await self._app(scope, receive, send)
