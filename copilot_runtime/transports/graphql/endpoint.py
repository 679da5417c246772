"""The endpoint of CopilotKit v1 clients; imports the GraphQL server lazily."""

import asyncio
from typing import TYPE_CHECKING

from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import ErrorReport, LimitExceeded
from copilot_runtime.base.gc_tuning import freeze_imports
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.transport import Refusal, Services, Transport

if TYPE_CHECKING:
    from copilot_runtime.transports.graphql.server import GraphQLServer


class GraphQLEndpoint(Transport):
    """Responds to CopilotKit v1 at the URL itself.

    Loading the GraphQL libraries and the schema takes 0.3 s and 9 MB. That happens in a thread, at
    the first request, so that an application without v1 clients never pays for it.
    """

    paths = ("",)

    def __init__(self, services: Services) -> None:
        self._services = services
        self._server: GraphQLServer | None = None
        self._loading = asyncio.Lock()

    async def accepts(self, request: Request) -> bool:
        """Accept all requests but AG-UI envelopes, including WebSockets and unreadable bodies."""
        return not await request.is_envelope()

    async def limit(self, request: Request, error: LimitExceeded) -> None:
        """Answer a chat with a failed response, and other requests with a GraphQL error."""
        if request.is_websocket:
            closing = {"code": 1013, "reason": "Try again later"}
            await request.send({"type": "websocket.close", **closing})
            return
        await self._load()
        from copilot_runtime.transports.graphql.response import GraphQLResponse  # loaded now

        await GraphQLResponse(request).fail(error, None)

    async def show(self, request: Request, refusal: Refusal) -> Refusal:
        """Return a response that v1 frontends display for a failed authentication."""
        await self._load()
        from copilot_runtime.transports.graphql import errors as failures  # loaded now

        if failures.CLIENT_VERSION not in request.headers:
            return refusal
        beginning = await request.peek()
        if not failures.is_chat(request, beginning):
            return refusal
        report = ErrorReport(
            code=refusal.body["errors"][0]["extensions"]["code"],
            message=str(refusal),
            status_code=refusal.status,
            visibility="banner",
        )
        return Refusal(200, failures.build_failed_response(report, beginning))

    async def __call__(self, request: Request) -> None:
        await (self._server or await self._load())(request)

    async def open(self) -> None:
        """Load a schema that plugins add to: their mistakes must not wait for the first request."""
        if any(not module.startswith("copilot_runtime.") for module in self._services.schema):
            await self._load()

    async def _load(self) -> "GraphQLServer":
        """Load the server once, and exclude what it imports from garbage collection."""
        async with self._loading:
            server = self._server
            if server is None:
                server = self._server = await call(self._create_server)
                freeze_imports()
        return server

    def _create_server(self) -> "GraphQLServer":
        from copilot_runtime.transports.graphql.server import GraphQLServer  # as above

        return GraphQLServer(self._services)
