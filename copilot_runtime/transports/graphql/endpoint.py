"""The one URL a v1 client talks to: which requests are GraphQL, and who answers them."""

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING

from copilot_runtime.gc_tuning import freeze_imports
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.transport import Services, Transport

if TYPE_CHECKING:
    from copilot_runtime.transports.graphql.server import GraphQLServer


class GraphQLEndpoint(Transport):
    """Answers CopilotKit v1 at the URL itself.

    The GraphQL libraries and the schema take 0.3 s to load. A thread does so when the application
    starts: an AG-UI client need not wait for it, and no event loop stands still.
    """

    paths = ("",)

    def __init__(self, services: Services) -> None:
        self._services = services
        self._loading: asyncio.Task[None] | None = None

    async def accepts(self, request: Request) -> bool:
        """Take all but AG-UI: WebSockets too, and what cannot be read."""
        return not await request.is_envelope()

    async def __call__(self, request: Request) -> None:
        if self._loading is not None and not self._loading.done():
            await asyncio.wait((self._loading,))
        await self._server(request)

    async def open(self) -> None:
        """Begin to load."""
        self._loading = asyncio.create_task(asyncio.to_thread(self._load), name="load GraphQL")

    async def aclose(self) -> None:
        """Wait until the thread has ended. What it raised, each request raises again."""
        if self._loading is not None:
            await asyncio.gather(self._loading, return_exceptions=True)
            self._loading = None

    def _load(self) -> None:
        _ = self._server
        freeze_imports()

    @cached_property
    def _server(self) -> "GraphQLServer":
        from copilot_runtime.transports.graphql.server import GraphQLServer  # as above

        return GraphQLServer(self._services)
