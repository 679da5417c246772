"""An application that answers chats before FastAPI is imported.

FastAPI with its models is a quarter of the start of a server, and no chat needs it.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any

from starlette.routing import Router as StarletteRouter
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send

from copilot_runtime.transports.urls import ChatUrls


class LazyApp:
    """Chats go to `router`, and all else to what `make` returns when first asked for it.

    `make` is called in a thread, so that no stream has to stand still. `lifespan` is entered here,
    not there.
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
            app = await asyncio.shield(self._made)  # one client that goes is not the last
        await app(scope, receive, send)


def is_traced() -> bool:
    """Return whether FastAPI has to see each request, because it may have to make spans."""
    return "opentelemetry" in sys.modules or "FASTAPI_OTEL_AUTO_CONFIGURE" in os.environ
