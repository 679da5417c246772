"""The endpoint of CopilotKit v1 clients; imports the GraphQL server lazily."""

from functools import cached_property
from typing import TYPE_CHECKING

from copilot_runtime.base.errors import ErrorReport, LimitExceeded
from copilot_runtime.base.gc_tuning import freeze_imports
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.transport import Refusal, Services, Transport

if TYPE_CHECKING:
    from copilot_runtime.transports.graphql.server import GraphQLServer


class GraphQLEndpoint(Transport):
    """Responds to CopilotKit v1 at the URL itself.

    Loading the GraphQL libraries and the schema takes 0.3 s. That happens when the application
    starts, so that it blocks no stream.
    """

    paths = ("",)

    def __init__(self, services: Services) -> None:
        self._services = services

    async def accepts(self, request: Request) -> bool:
        """Accept all requests but AG-UI envelopes, including WebSockets and unreadable bodies."""
        return not await request.is_envelope()

    async def limit(self, request: Request, error: LimitExceeded) -> None:
        """Answer a chat with a failed response, and other requests with a GraphQL error."""
        if request.is_websocket:
            closing = {"code": 1013, "reason": "Try again later"}
            await request.send({"type": "websocket.close", **closing})
            return
        from copilot_runtime.transports.graphql.response import GraphQLResponse  # as below

        await GraphQLResponse(request).fail(error, None)

    async def show(self, request: Request, refusal: Refusal) -> Refusal:
        """Return a response that v1 frontends display for a failed authentication."""
        from copilot_runtime.transports.graphql import errors as failures  # as below

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
        await self._server(request)

    async def open(self) -> None:
        """Load the libraries and the schema, and exclude them from garbage collection."""
        _ = self._server
        freeze_imports()

    @cached_property
    def _server(self) -> "GraphQLServer":
        from copilot_runtime.transports.graphql.server import GraphQLServer  # as above

        return GraphQLServer(self._services)
