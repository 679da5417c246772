"""Subscriptions over graphql-transport-ws (https://github.com/enisdenjo/graphql-ws/blob/master/PROTOCOL.md).

Strawberry implements the protocol; this module adds our context, limits and errors.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from copy import copy
from dataclasses import replace
from datetime import timedelta
from json import JSONDecodeError
from typing import Any, TypeGuard, cast

from graphql import (
    DocumentNode,
    GraphQLError,
    NameNode,
    OperationDefinitionNode,
    OperationType,
    SelectionSetNode,
)
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Send
from starlette.websockets import WebSocket, WebSocketState
from strawberry.asgi import ASGIWebSocketAdapter, GraphQL
from strawberry.extensions import SchemaExtension
from strawberry.subscriptions import GRAPHQL_TRANSPORT_WS_PROTOCOL
from strawberry.types.execution import ExecutionResult, StreamExecutionResult

from copilot_runtime.api.identity import Forbidden
from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.base.jsontext import loads
from copilot_runtime.transports.body import has_more_values
from copilot_runtime.transports.graphql.context import CONTEXT, Context
from copilot_runtime.transports.graphql.errors import format_error, hide_details
from copilot_runtime.transports.graphql.schema import make_schema

_INIT_TIMEOUT = timedelta(seconds=10)
_SUBSCRIPTIONS_PER_CONNECTION = 20

_LONGEST_REASON = 123
"""Bytes: a WebSocket control frame has 125, of which two are the code (RFC 6455, 5.5)."""


class _Connection(ASGIWebSocketAdapter):
    """A WebSocket that truncates close reasons, which may repeat the client's input."""

    async def send_json(self, message: Mapping[str, object]) -> None:
        """Send a message, unless the socket is already closed, perhaps during an operation."""
        if self.ws.application_state is WebSocketState.CONNECTED:
            await super().send_json(message)

    async def close(self, code: int, reason: str) -> None:
        short = reason.encode(errors="replace")[:_LONGEST_REASON].decode(errors="ignore")
        await super().close(code, short)


class Socket(GraphQL[Context, None]):
    """Strawberry's GraphQL view, for WebSockets only, with our context and limits."""

    websocket_adapter_class = _Connection

    def __init__(self, max_values: int, modules: tuple[str, ...]) -> None:
        self._max_values = max_values
        super().__init__(
            make_schema(modules, [KnownDocuments, SafeErrors, TraceIds]),
            graphql_ide=None,
            subscription_protocols=[GRAPHQL_TRANSPORT_WS_PROTOCOL],
            connection_init_wait_timeout=_INIT_TIMEOUT,
            max_subscriptions_per_connection=_SUBSCRIPTIONS_PER_CONNECTION,
        )

    async def get_context(
        self,
        request: Request | WebSocket,
        response: Response | WebSocket,  # noqa: ARG002  # Strawberry's signature
    ) -> Context:
        return request.scope[CONTEXT]

    def decode_json(self, data: str | bytes) -> object:
        """Decode one message; Strawberry would fail on a message that violates the protocol."""
        written = data.encode(errors="replace") if isinstance(data, str) else data
        if has_more_values(written, self._max_values):
            raise JSONDecodeError("too many values", "", 0)
        try:
            message = loads(written)
        except ValueError as error:
            raise JSONDecodeError("no JSON", "", 0) from error
        if not _is_message(message):
            raise JSONDecodeError("no message", "", 0)
        if message.get("payload") is None:  # Strawberry accepts a missing payload, but not null
            message.pop("payload", None)
        return message

    def is_websocket_origin_allowed(self, request: WebSocket, origin: str) -> bool:  # noqa: ARG002  # Strawberry's signature
        """Allow every origin: the router has already rejected foreign ones."""
        return True


def _is_message(value: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether the fields of a message have the types that the protocol requires."""
    if not isinstance(value, dict):
        return False
    message = cast("dict[str, Any]", value)
    kind, payload = message.get("type"), message.get("payload")
    if not isinstance(kind, str) or not isinstance(payload, dict | None):
        return False
    if kind not in ("subscribe", "complete"):
        return True
    if not isinstance(message.get("id"), str):
        return False
    return kind == "complete" or (payload is not None and _is_operation(payload))


def _is_operation(payload: Mapping[str, Any]) -> bool:
    return (
        isinstance(payload.get("query"), str)
        and isinstance(payload.get("variables"), dict | None)
        and isinstance(payload.get("operationName"), str | None)
    )


def close_when_idle(receive: Receive, send: Send, context: Context, timeout: float) -> Receive:
    """Return a `receive` that closes a connection after `timeout` seconds without operations."""

    async def receive_or_end() -> Message:
        while True:
            try:
                async with asyncio.timeout(timeout):
                    return await receive()
            except TimeoutError:
                if context.operations:
                    continue
            reason = f"No operation for {timeout:g} s"
            await send({"type": "websocket.close", "code": 1000, "reason": reason})
            return {"type": "websocket.disconnect", "code": 1000, "reason": reason}

    return receive_or_end


class KnownDocuments(SchemaExtension):
    """Uses the cache of documents for parsing, which also checks the limits.

    Runs that would end with their request end with their operation here, not with the connection.
    """

    async def on_operation(self) -> AsyncIterator[None]:
        execution = self.execution_context
        connection: Context = execution.context
        execution.context = context = replace(connection, started=[])
        document = await context.documents.get(execution.query or "")
        # Strawberry would parse and validate again, without our limits and on the event loop,
        # unless there is a document and a list of errors, which may be empty
        execution.graphql_document = document.node or _build_stand_in(execution.operation_name)
        execution.pre_execution_errors = [*document.errors]
        refusal: Forbidden | None = None
        operation = document.operations.get(execution.operation_name)
        if operation is not None and not document.errors:
            try:
                context.check_size(operation, execution.variables or {})
                operation.require_scopes(context.caller.identity)
            except (Forbidden, LimitExceeded) as error:
                refusal = error if isinstance(error, Forbidden) else None
                execution.pre_execution_errors = [hide_details(error)]
        connection.operations += 1
        try:
            yield
        finally:
            connection.operations -= 1
            context.stop_runs()
            if not document.errors and (record := connection.request.record) is not None:
                request = copy(connection.request)
                if operation is not None:
                    operation.describe(request)
                record(request, refusal)


def _build_stand_in(operation_name: str | None) -> DocumentNode:
    """Return a placeholder for an unparsed document: an operation of that name, never executed."""
    name = NameNode(value=operation_name) if operation_name else None
    nothing = SelectionSetNode(selections=())
    operation = OperationType.QUERY
    return DocumentNode(
        definitions=(
            OperationDefinitionNode(operation=operation, name=name, selection_set=nothing),
        )
    )


class SafeErrors(SchemaExtension):
    """Formats errors as over HTTP: ours with their codes, and others without details."""

    def on_stream_result(self, result: StreamExecutionResult) -> Iterator[None]:
        if isinstance(result, ExecutionResult) and result.errors:
            result.errors = [_safe(error) for error in result.errors]
        yield


class TraceIds(SchemaExtension):
    """Adds the trace id of a run to its first update or its response, if the client wants it."""

    def on_stream_result(self, result: StreamExecutionResult) -> Iterator[None]:
        context: Context = self.execution_context.context
        if isinstance(result, ExecutionResult) and context.trace_id:
            result.extensions = {**(result.extensions or {}), **self.get_results()}
            context.trace_id = ""
        yield

    def get_results(self) -> dict[str, Any]:
        trace_id = self.execution_context.context.trace_id
        return {"trace": {"traceId": trace_id}} if trace_id else {}


def _safe(error: GraphQLError) -> GraphQLError:
    if isinstance(error.original_error, GraphQLError):  # already formatted
        return error
    formatted = format_error(error)
    return GraphQLError(
        formatted["message"], error.nodes, path=error.path, extensions=formatted.get("extensions")
    )
