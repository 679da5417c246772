"""The one URL a v1 client talks to: which requests are GraphQL, and who answers them."""

from functools import cached_property
from typing import TYPE_CHECKING

from copilot_runtime.transports.request import Request
from copilot_runtime.transports.transport import Services, Transport

if TYPE_CHECKING:
    from copilot_runtime.transports.graphql.server import GraphQLServer


class GraphQLEndpoint(Transport):
    """Answers CopilotKit v1 at the URL itself.

    The GraphQL libraries and the schema are loaded at the first request: a process that serves
    only AG-UI never needs them.
    """

    paths = ("",)

    def __init__(self, services: Services) -> None:
        self._services = services

    async def accepts(self, request: Request) -> bool:
        """Take all but AG-UI: WebSockets too, and what cannot be read."""
        return not await request.is_envelope()

    async def __call__(self, request: Request) -> None:
        await self._server(request)

    @cached_property
    def _server(self) -> "GraphQLServer":
        from copilot_runtime.transports.graphql.server import GraphQLServer  # takes 0.3 s

        return GraphQLServer(self._services)
