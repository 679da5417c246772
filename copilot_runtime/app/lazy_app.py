"""An ASGI application that answers chats before FastAPI is imported.

Importing FastAPI with its models takes a quarter of a server's startup time, and chats do not need
it.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any

from starlette.routing import Router as StarletteRouter
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send

from copilot_runtime.transports.router import ChatUrls


class LazyApp:
    """Sends chats to `router` and all other requests to the application that `make` returns.

    `make` is called once, in a thread, so that streams are not blocked. `lifespan` is entered here,
    not in that application.
    """

    def __init__(
        self,
        path: str,
        router: ASGIApp,
        *,
        make: Callable[[], ASGIApp],
        lifespan: Lifespan[Any],
    ) -> None:
        self._chats = ChatUrls(path)
        self._router = router
        self._make = make
        self._live = StarletteRouter(lifespan=lifespan)
        self._made: asyncio.Future[ASGIApp] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._chats.match(scope):
            app = self._router
        elif scope["type"] == "lifespan":
            app = self._live
        else:
            if self._made is None:
                self._made = asyncio.ensure_future(asyncio.to_thread(self._make))
            app = await asyncio.shield(
                self._made
            )  # a disconnecting client must not cancel it for others
        await app(scope, receive, send)


def is_traced() -> bool:
    """Return `True` if FastAPI must see each request because it may be instrumented for tracing."""
    return "opentelemetry" in sys.modules or "FASTAPI_OTEL_AUTO_CONFIGURE" in os.environ
