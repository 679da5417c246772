"""The one URL a v1 client talks to: GraphQL over HTTP, streamed, and over WebSockets.

Plain ASGI, because every chunk passes here. Two engines answer: a compiled plan writes the
documents that CopilotKit's clients send (`plan.py`, `encode.py`); graphql-core executes all
others. Both write the same dialect.
"""

import inspect
import re
from collections.abc import Mapping
from contextlib import aclosing
from functools import cached_property
from typing import TYPE_CHECKING, Any

from graphql import (
    DocumentNode,
    ExecutionResult,
    ExperimentalIncrementalExecutionResults,
    OperationType,
    get_operation_ast,
)
from graphql.execution import experimental_execute_incrementally
from starlette.types import Receive, Scope, Send

from copilot_runtime.interfaces import Caller
from copilot_runtime.security.cors import Cors, RawHeaders
from copilot_runtime.transports.auth import CALLER
from copilot_runtime.transports.body import BadRequest, ClientGone, read_body
from copilot_runtime.transports.graphql.context import CONTEXT, Context, Gateway
from copilot_runtime.transports.graphql.documents import Document, Documents
from copilot_runtime.transports.graphql.encode import Encoder
from copilot_runtime.transports.graphql.errors import (
    build_root_error,
    format_error,
    format_errors,
    is_request_error,
)
from copilot_runtime.transports.graphql.incremental import PathDialect
from copilot_runtime.transports.graphql.inputs import GenerateCopilotResponseInput, read_input
from copilot_runtime.transports.graphql.plan import Plan
from copilot_runtime.transports.graphql.reply import Reply
from copilot_runtime.transports.graphql.request import (
    GraphQLRequest,
    read_post,
    read_query_string,
)
from copilot_runtime.transports.graphql.schema import core_schema, respond
from copilot_runtime.transports.streaming import WriteTimeout, run_until_disconnect

if TYPE_CHECKING:
    from copilot_runtime.transports.graphql.websocket import Socket

_NOBODY = Caller()
_CLIENT_VERSION = "x-copilotkit-runtime-client-gql-version"
_VERSION = re.compile(r"[\w.+-]{1,64}")

_WITHOUT_PREFLIGHT = frozenset({"", "application/x-www-form-urlencoded"})
"""Types of body that we read, and that a page may send to another origin unasked."""


class GraphQLEndpoint:
    """An ASGI application for one URL. Sizes are in bytes, times in seconds.

    `properties` are the operator's, and those of the client come on top. Who asks is in the
    scope, under `CALLER`.
    """

    def __init__(
        self,
        runs: Gateway,
        *,
        properties: Mapping[str, Any] | None = None,
        cors: Cors | None = None,
        max_body_bytes: int = 16 * 1024 * 1024,
        max_messages: int = 2000,
        max_depth: int = 15,
        max_aliases: int = 50,
        max_tokens: int = 2000,
        introspection: bool = True,
        write_timeout: float = 60.0,
    ) -> None:
        self.runs = runs
        self._properties = properties or {}
        self._cors = cors or Cors()
        self._max_body_bytes = max_body_bytes
        self._max_messages = max_messages
        self._write_timeout = write_timeout
        self._schema = core_schema()
        self._documents = Documents(
            self._schema,
            max_depth=max_depth,
            max_aliases=max_aliases,
            max_tokens=max_tokens,
            introspection=introspection,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        if scope["type"] == "websocket":
            await self._connection(scope, receive, send)
            return
        reply = Reply(
            send,
            accept=headers.get("accept", ""),
            headers=[*self._version(headers), *self._cors.headers(headers)],
            write_timeout=self._write_timeout,
        )
        try:
            await self._answer(scope, receive, headers, reply)
        except BadRequest as error:
            await reply.refuse(error)
        except (ClientGone, WriteTimeout):
            pass  # nobody is left to be told

    async def _connection(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a WebSocket. What its mutations started ends with it; subscriptions go on."""
        context = self._context(scope)
        try:
            await self._socket({**scope, CONTEXT: context}, receive, send)
        finally:
            self._stop(context)

    async def _answer(
        self, scope: Scope, receive: Receive, headers: Mapping[str, str], reply: Reply
    ) -> None:
        method = scope["method"]
        if method == "OPTIONS":
            version = self._version(headers)
            await reply.empty(204, [*version, *self._cors.preflight(headers)])
        elif method == "POST":
            self._check_origin(headers)
            body = await read_body(receive, headers, self._max_body_bytes)
            request = read_post(body, headers.get("content-type", "application/json"))
            await self._operation(request, scope, receive, reply)
        elif method == "GET":
            request = read_query_string(scope["query_string"])
            await self._operation(request, scope, receive, reply, reads_only=True)
        else:
            raise BadRequest("GraphQL only supports GET and POST requests.", 405, allow="GET, POST")

    def _check_origin(self, headers: Mapping[str, str]) -> None:
        """Raise `BadRequest` for a foreign page that asks in a person's name, cookies and all.

        It could not read the answer, but the run and its actions would have happened.
        """
        origin = headers.get("origin")
        if origin is None or self._cors.allows(origin):
            return
        if headers.get("content-type", "").partition(";")[0].strip().lower() in _WITHOUT_PREFLIGHT:
            raise BadRequest("Pages of this origin may not ask.", 403, "FORBIDDEN")

    async def _operation(
        self,
        request: GraphQLRequest,
        scope: Scope,
        receive: Receive,
        reply: Reply,
        *,
        reads_only: bool = False,
    ) -> None:
        document = self._documents.get(request.query)
        if document.node is None:
            code = "GRAPHQL_VALIDATION_FAILED" if document.parsed else "GRAPHQL_PARSE_FAILED"
            await reply.json(format_errors(document.errors, code), bad=True)
            return
        _check_operation(document.node, request.operation_name, reads_only=reads_only)
        if document.errors:
            await reply.json(format_errors(document.errors, "GRAPHQL_VALIDATION_FAILED"), bad=True)
            return
        context = self._context(scope)
        try:
            work = self._execute(request, document, context, reply)
            await run_until_disconnect(work, receive, lambda: self._stop(context))
        finally:
            self._stop(context)

    async def _execute(
        self, request: GraphQLRequest, document: Document, context: Context, reply: Reply
    ) -> None:
        plan = self._documents.plan(document, request.operation_name)
        if plan is not None:
            data = read_input(request.variables.get(plan.data))
            properties = request.variables.get(plan.properties or "")
            if data is not None and isinstance(properties, dict | None):
                await self._planned(plan, data, properties, context, reply)
                return
        await self._executed(request, document, context, reply)

    async def _planned(
        self,
        plan: Plan,
        data: GenerateCopilotResponseInput,
        properties: dict[str, Any] | None,
        context: Context,
        reply: Reply,
    ) -> None:
        """Answer by the plan: start the run and write its log as it grows."""
        reply.require_stream()
        try:
            response = await respond(context, data, properties)
            log = context.runs.follow(context.started[-1])
        except Exception as error:  # also of hooks and agents: told to the client, masked
            await reply.json(build_root_error(error, plan.key))
            return
        encoder = Encoder(plan)
        async with reply.stream() as stream, aclosing(log) as batches:
            await stream.send(encoder.begin(response))
            async for _, events in batches:
                if payloads := encoder.feed(events):
                    await stream.send(*payloads, last=encoder.ended)

    async def _executed(
        self, request: GraphQLRequest, document: Document, context: Context, reply: Reply
    ) -> None:
        """Answer by graphql-core, in one body or in its own patches, translated."""
        assert document.node is not None
        result = experimental_execute_incrementally(
            self._schema,
            document.node,
            context_value=context,
            variable_values=request.variables,
            operation_name=request.operation_name,
        )
        if inspect.isawaitable(result):
            result = await result
        if isinstance(result, ExecutionResult):
            await reply.json(*_body(result))
            return
        assert isinstance(result, ExperimentalIncrementalExecutionResults)
        reply.require_stream()
        dialect = PathDialect()
        async with (
            reply.stream() as stream,
            aclosing(result.subsequent_results) as results,
        ):
            await stream.send_json(dialect.first(result.initial_result))
            async for later in results:
                await stream.send_json(dialect.next(later), last=not later.has_next)

    def _context(self, scope: Scope) -> Context:
        return Context(
            runs=self.runs,
            documents=self._documents,
            caller=scope.get(CALLER, _NOBODY),
            properties=self._properties,
            max_messages=self._max_messages,
        )

    def _stop(self, context: Context) -> None:
        for run_id in context.started:
            self.runs.stop(run_id)

    def _version(self, headers: Mapping[str, str]) -> RawHeaders:
        """Echo the client's version: with any other, v1 clients show a banner of mismatch."""
        version = headers.get(_CLIENT_VERSION, "")
        if not _VERSION.fullmatch(version):
            return []
        return [(b"x-copilotkit-runtime-version", version.encode("latin-1"))]

    @cached_property
    def _socket(self) -> "Socket":
        from copilot_runtime.transports.graphql.websocket import Socket  # only for subscriptions

        return Socket(self._cors)


def _check_operation(document: DocumentNode, name: str | None, *, reads_only: bool) -> None:
    """Raise `BadRequest` for an operation that is not there, or not to be had this way."""
    operation = get_operation_ast(document, name)
    if operation is None:
        raise BadRequest(
            "Could not determine what operation to execute.", code="OPERATION_RESOLUTION_FAILURE"
        )
    if operation.operation is OperationType.SUBSCRIPTION:
        raise BadRequest(
            "Subscriptions are answered over WebSockets (graphql-transport-ws) at this URL."
        )
    if reads_only and operation.operation is not OperationType.QUERY:
        raise BadRequest(
            "Can only perform a mutation operation from a POST request.", 405, allow="POST"
        )


def _body(result: ExecutionResult) -> tuple[Mapping[str, Any], bool]:
    """Return the body of a result, and whether the request was at fault."""
    errors = [format_error(error) for error in result.errors or ()]
    if is_request_error(result) and errors:
        return {"errors": errors}, True
    return {**({"errors": errors} if errors else {}), "data": result.data}, False
