"""Subscriptions over graphql-transport-ws (https://github.com/enisdenjo/graphql-ws/blob/master/PROTOCOL.md).

Strawberry speaks the protocol; this only tells it who asks and what the limits are.
"""

from collections.abc import Iterator
from datetime import timedelta
from json import JSONDecodeError

from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket
from strawberry.asgi import GraphQL
from strawberry.extensions import SchemaExtension
from strawberry.subscriptions import GRAPHQL_TRANSPORT_WS_PROTOCOL

from copilot_runtime.security.cors import Cors
from copilot_runtime.transports.graphql.context import CONTEXT, Context
from copilot_runtime.transports.graphql.schema import make_schema

_INIT_TIMEOUT = timedelta(seconds=10)
_SUBSCRIPTIONS_PER_CONNECTION = 20


class Socket(GraphQL[Context, None]):
    """Strawberry's view, for WebSockets only, with our context and our limits."""

    def __init__(self, cors: Cors) -> None:
        super().__init__(
            make_schema([KnownDocuments]),
            graphql_ide=None,
            subscription_protocols=[GRAPHQL_TRANSPORT_WS_PROTOCOL],
            connection_init_wait_timeout=_INIT_TIMEOUT,
            max_subscriptions_per_connection=_SUBSCRIPTIONS_PER_CONNECTION,
        )
        self._cors = cors

    async def get_context(
        self,
        request: Request | WebSocket,
        response: Response | WebSocket,  # noqa: ARG002  # Strawberry's signature
    ) -> Context:
        return request.scope[CONTEXT]

    def decode_json(self, data: str | bytes) -> object:
        """Read one message. The protocol knows objects only; Strawberry would trip over others."""
        value = super().decode_json(data)
        if not isinstance(value, dict):
            raise JSONDecodeError("not an object", str(data)[:40], 0)
        return value

    def is_websocket_origin_allowed(self, request: WebSocket, origin: str) -> bool:  # noqa: ARG002  # Strawberry's signature
        """Judge a page of another origin: browsers send no preflight for WebSockets."""
        return self._cors.allows(origin)


class KnownDocuments(SchemaExtension):
    """Parses through the cache of documents, which also knows the limits."""

    def on_operation(self) -> Iterator[None]:
        execution = self.execution_context
        context: Context = execution.context
        document = context.documents.get(execution.query or "")
        if document.errors:
            execution.pre_execution_errors = document.errors
        else:
            execution.graphql_document = document.node
        yield
