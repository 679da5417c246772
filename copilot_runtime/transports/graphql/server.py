"""GraphQL over HTTP, streamed, and over WebSockets.

It is plain ASGI, because every chunk passes through it. There are two engines: a compiled plan for
the documents of CopilotKit's clients (`plan.py`, `encode.py`), and graphql-core for all others.
Both write the same dialect.
"""

import inspect
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import parse_qsl

from graphql import (
    ExecutionResult,
    ExperimentalIncrementalExecutionResults,
    GraphQLError,
    OperationType,
    subscribe,
)
from graphql.execution import experimental_execute_incrementally
from starlette.types import Scope

from copilot_runtime.api.identity import Forbidden
from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.transports.body import BadRequest
from copilot_runtime.transports.graphql.context import CONTEXT, Context
from copilot_runtime.transports.graphql.documents import Document, Documents
from copilot_runtime.transports.graphql.encode import Encoder
from copilot_runtime.transports.graphql.errors import build_root_error, format_error, format_errors
from copilot_runtime.transports.graphql.inputs import GenerateCopilotResponseInput, read_input
from copilot_runtime.transports.graphql.operation import Operation
from copilot_runtime.transports.graphql.plan import Plan
from copilot_runtime.transports.graphql.response import EVENT_STREAM, GraphQLResponse, PathDialect
from copilot_runtime.transports.graphql.schema import (
    build_response,
    core_schema,
    start_run,
)
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.streaming import run_until_disconnect
from copilot_runtime.transports.transport import Services

if TYPE_CHECKING:
    from copilot_runtime.transports.graphql.websocket import Socket

_LARGE = 64 * 1024
"""Size of a request in bytes above which its variables are checked against the limits."""


class GraphQLServer:
    """Responds to the requests of CopilotKit v1."""

    def __init__(self, services: Services) -> None:
        settings = services.settings
        self._services = services
        self._schema = core_schema(services.schema)
        self._documents = Documents(
            self._schema,
            max_length=settings.max_document_length,
            max_depth=settings.max_depth,
            max_aliases=settings.max_aliases,
            max_tokens=settings.max_tokens_in_document,
            introspection=settings.introspection,
        )

    async def __call__(self, request: Request) -> None:
        context = Context(request, self._services, self._documents)
        try:
            if request.is_websocket:  # runs of its mutations end with it; subscribed runs continue
                scope = {**request.scope, CONTEXT: context}
                await self._answer_socket(scope, request, context)
            else:
                await self._respond(request, context)
        finally:
            context.stop_runs()

    async def _respond(self, request: Request, context: Context) -> None:
        response = GraphQLResponse(request)
        try:
            sent = await read_request(request)
            if response.accepts_events:
                response.sends_events = sent.query.lstrip().startswith("subscription")
            document = await self._documents.get(sent.query)
            operation = document.operations.get(sent.operation_name)
            if document.errors:  # nothing is executed, and its names are arbitrary
                request.is_read = True
            elif operation is not None:
                operation.describe(request)
            if document.node is not None:
                _check_operation(operation, response, reads_only=request.method == "GET")
            if document.errors or operation is None:
                code = "GRAPHQL_VALIDATION_FAILED" if document.parsed else "GRAPHQL_PARSE_FAILED"
                await response.json(format_errors(document.errors, code), 400)
                return
            work = self._execute(sent, document, operation, context, response)
            gone = context.stop_runs
            if operation.kind is OperationType.SUBSCRIPTION:  # a followed run goes on
                response.sends_events, gone = True, None
            await run_until_disconnect(work, request.receive, gone)
        except BadRequest as error:
            await response.refuse(error)

    async def _execute(
        self,
        request: "GraphQLRequest",
        document: Document,
        operation: Operation,
        context: Context,
        response: GraphQLResponse,
    ) -> None:
        plan = self._documents.plan(document, request.operation_name)
        try:
            operation.require_scopes(context.caller.identity)
            if request.size > _LARGE:
                context.check_size(operation, request.variables)
        except (Forbidden, LimitExceeded) as error:
            if isinstance(error, Forbidden):
                context.request.refusal = error
            await response.fail(error, plan.key if plan else None)
            return
        if plan is not None:
            data = read_input(request.variables.get(plan.data))
            properties = request.variables.get(plan.properties or "")
            if data is not None and isinstance(properties, dict | None):
                request.variables.clear()  # they are in `data`, and an answer may take minutes
                await self._execute_plan(plan, data, properties, context, response)
                return
        execute = self._execute_document
        if operation.kind is OperationType.SUBSCRIPTION:
            execute = self._follow_subscription
        await execute(request, document, context, response)

    async def _execute_plan(
        self,
        plan: Plan,
        data: GenerateCopilotResponseInput,
        properties: dict[str, Any] | None,
        context: Context,
        response: GraphQLResponse,
    ) -> None:
        """Execute a planned document: start the run and stream its log."""
        framing = response.require_stream()
        try:
            run = await start_run(context, data, properties)
            log = run.follow()
        except (Forbidden, LimitExceeded) as error:
            await response.fail(error, plan.key)
            return
        except Exception as error:  # even of hooks and agents: clients get no details
            context.request.set_retry_after(error)
            await response.json(build_root_error(error, plan.key))
            return
        data.messages.clear()  # the run has them
        context.request.release_body()
        encoder = Encoder(plan, build_response(run))
        extensions = response.add_trace(run, properties)
        async with response.stream(framing) as stream, aclosing(log):
            await stream.write(framing.begin(encoder.begin(extensions)))
            await stream.write_log(
                log, lambda events: framing.join(encoder.feed(events), last=encoder.ended)
            )

    async def _execute_document(
        self,
        request: "GraphQLRequest",
        document: Document,
        context: Context,
        response: GraphQLResponse,
    ) -> None:
        """Execute a document with graphql-core; translate its incremental patches."""
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
        properties = request.variables.get("properties")
        found = [response.add_trace(run, properties) for run in context.started[-1:]]
        more = {"extensions": found[0]} if found and found[0] else {}
        if isinstance(result, ExecutionResult):
            for error in result.errors or ():
                context.request.set_retry_after(error.original_error)
            body, status = _build_body(result)
            await response.json({**body, **more}, status)
            return
        assert isinstance(result, ExperimentalIncrementalExecutionResults)
        framing, dialect = response.require_stream(), PathDialect()
        async with (
            response.stream(framing) as stream,
            aclosing(result.subsequent_results) as results,
        ):
            first = {**dialect.first(result.initial_result), **more}
            await stream.write(framing.begin(dumps(first)))
            async for later in results:
                last = not later.has_next
                body = framing.join([dumps(dialect.next(later))], last=last)
                await stream.write(body, last=last)

    async def _follow_subscription(
        self,
        request: "GraphQLRequest",
        document: Document,
        context: Context,
        response: GraphQLResponse,
    ) -> None:
        """Send the results of a subscription as server-sent events.

        This is the "distinct connections mode" of graphql-sse, with which urql subscribes:
        https://github.com/enisdenjo/graphql-sse/blob/master/PROTOCOL.md.
        """
        assert document.node is not None
        found = subscribe(
            self._schema,
            document.node,
            context_value=context,
            variable_values=request.variables,
            operation_name=request.operation_name,
        )
        found = await found if inspect.isawaitable(found) else found
        if isinstance(found, ExecutionResult):
            await response.json(*_build_body(found))
            return
        framing = EVENT_STREAM
        keep_alive = self._services.settings.keep_alive
        results = cast("AsyncGenerator[ExecutionResult, None]", found)
        async with response.stream(framing, keep_alive) as stream, aclosing(results):
            await stream.write(framing.opening)
            try:
                async for result in results:
                    body, _ = _build_body(result)
                    if context.trace_id:
                        body = {**body, "extensions": {"trace": {"traceId": context.trace_id}}}
                        context.trace_id = ""
                    await stream.write(framing.part(dumps(body)))
            except GraphQLError as error:
                await stream.write(framing.part(dumps({"errors": [format_error(error)]})))
            await stream.write(framing.closing, last=True)

    async def _answer_socket(self, scope: Scope, request: Request, context: Context) -> None:
        from copilot_runtime.transports.graphql.websocket import close_when_idle  # as below

        timeout = self._services.settings.read_timeout
        receive = close_when_idle(request.receive, request.send, context, timeout)
        await self._socket(scope, receive, request.send)

    @cached_property
    def _socket(self) -> "Socket":
        from copilot_runtime.transports.graphql.websocket import Socket  # only for subscriptions

        return Socket(self._services.settings.max_values, self._services.schema)


def _check_operation(
    operation: Operation | None, response: GraphQLResponse, *, reads_only: bool
) -> None:
    """Raise `BadRequest` for an operation that is missing or not allowed over this method."""
    if operation is None:
        raise BadRequest(
            "Could not determine what operation to execute.", code="OPERATION_RESOLUTION_FAILURE"
        )
    if operation.kind is OperationType.SUBSCRIPTION and not response.accepts_events:
        raise BadRequest(
            "Subscriptions are answered as server-sent events to requests that accept "
            "text/event-stream, and over WebSockets (graphql-transport-ws), at this URL."
        )
    if reads_only and operation.kind is not OperationType.QUERY:
        raise BadRequest(
            f"Can only perform a {operation.kind.value} operation from a POST request.",
            405,
            allow="POST",
        )


def _build_body(result: ExecutionResult) -> tuple[Mapping[str, Any], int]:
    """Return the body and the status for a result."""
    if not result.errors:
        return {"data": result.data}, 200
    errors = [format_error(error) for error in result.errors]
    if result.data is None and all(error.path is None for error in result.errors):
        return {"errors": errors}, 400  # invalid variables: nothing was executed
    return {"errors": errors, "data": result.data}, 200


_PARAMETERS = {"query", "operationName", "variables", "extensions"}
_FORM_BYTES = 1024 * 1024
"""Maximum size of an URL-encoded form. Decoding takes 30 times as long as for JSON."""


class GraphQLRequest(NamedTuple):
    query: str
    operation_name: str | None
    variables: dict[str, Any]
    size: int
    """Size of the body in bytes, or of the URL's query in characters."""


async def read_request(request: Request) -> GraphQLRequest:
    """Parse a GET or POST request. Raises `BadRequest`."""
    match request.method:
        case "POST":
            return await _read_post(request)
        case "GET" if request.query_string:
            return _from_text(request, request.query_string)
        case "GET":
            raise BadRequest("Must provide query string.", allow="GET, POST")
        case _:
            raise BadRequest("GraphQL only supports GET and POST requests.", 405, allow="GET, POST")


async def _read_post(request: Request) -> GraphQLRequest:
    has_type = "content-type" in request.headers
    media_type = request.content_type if has_type else "application/json"
    body = await request.body()
    match media_type:
        case "application/json" | "application/graphql+json":
            try:
                return _from_mapping(await request.json(), len(body))
            except ValueError as error:
                raise _not_json(error) from None
        case "application/graphql":
            return GraphQLRequest(body.decode("utf-8", "replace"), None, {}, 0)
        case "application/x-www-form-urlencoded":
            if len(body) > _FORM_BYTES:
                message = f"A form has at most {_FORM_BYTES:,} bytes; send application/json."
                raise BadRequest(message, 413, "LIMIT_EXCEEDED")
            return _from_text(request, body.decode("utf-8", "replace"))
        case _:
            raise BadRequest(
                f"Cannot read a body of type {media_type!r}; send application/json.", 415
            )


def _from_text(request: Request, text: str) -> GraphQLRequest:
    try:
        fields: dict[str, Any] = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=20))
    except ValueError as error:
        raise BadRequest("Too many fields; a request has four.") from error
    if variables := fields.get("variables"):
        try:
            fields["variables"] = request.decode_json(variables.encode())
        except ValueError as error:
            raise _not_json(error) from None
    return _from_mapping({key: fields[key] for key in fields if key in _PARAMETERS}, len(text))


def _not_json(error: ValueError) -> BadRequest:
    return BadRequest(f"POST body sent invalid JSON. {error}")


def _from_mapping(value: Any, size: int) -> GraphQLRequest:
    if isinstance(value, list):
        raise BadRequest("Batching is not supported.")
    if not isinstance(value, dict):
        raise BadRequest("The request body must be a JSON object.")
    body: dict[str, Any] = value
    if not body.keys() <= _PARAMETERS:
        name = next(name for name in body if name not in _PARAMETERS)
        raise BadRequest(f'Unexpected parameter "{name}" in the request body.')
    query, variables = body.get("query"), body.get("variables")
    operation_name = body.get("operationName")
    if not query or not isinstance(query, str):
        raise BadRequest("Must provide query string.")
    if variables is not None and not isinstance(variables, dict):
        raise BadRequest("The variables must be a JSON object.")
    if operation_name is not None and not isinstance(operation_name, str):
        raise BadRequest("The operationName must be a string.")
    return GraphQLRequest(query, operation_name or None, variables or {}, size)
