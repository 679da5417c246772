"""What a proxy says of the scheme by which it was asked, such as `https` where TLS ends there."""

from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send

from copilot_runtime.security.proxies import TrustedProxies

_SCHEMES = {b"http": ("http", "ws"), b"https": ("https", "wss"), b"ws": ("http", "ws")}
_SCHEMES[b"wss"] = _SCHEMES[b"https"]
_LOOPBACK = ("127.0.0.0/8", "::1")


class ForwardedScheme:
    """Takes `X-Forwarded-Proto` of proxies, and of this machine, for the scheme of a request.

    URLs of ours then begin as clients have to write them. Unlike the middleware of uvicorn, it
    leaves the address of the connection alone: whom `X-Forwarded-For` is believed is a setting, and
    anybody writes that header through a proxy that lets it pass.
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
