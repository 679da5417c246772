"""A span for each MCP request, as the semantic conventions for MCP define it.

https://github.com/open-telemetry/semantic-conventions-genai, docs/mcp
"""

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from mcp import MCPError
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    CallToolResult,
)
from pydantic import ValidationError

from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.context import SpanContext
from copilot_runtime.telemetry.rpc import start_mcp_server_span
from copilot_runtime.telemetry.span import Span, extract_context, work_under
from copilot_runtime.telemetry.telemetry import Telemetry

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

_SESSION_ID = "mcp-session-id"
_RESOURCE_NOT_FOUND = -32002
_FAULTS_OF_CLIENTS = frozenset(
    {PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, _RESOURCE_NOT_FOUND}
)
"""Error codes that do not mark the server's span as failed."""
_TOOL_ERROR = "tool_error"


class SpanMiddleware:
    """Traces requests, in place of the middleware of the package `mcp`.

    Notifications and pings have no spans. Spans of a request's work are children of its span, whose
    parent is named by `_meta`, or else found by `find_parent` in the HTTP request.
    """

    def __init__(
        self, telemetry: Telemetry, find_parent: Callable[[Any], SpanContext | None]
    ) -> None:
        self._telemetry = telemetry
        self._find_parent = find_parent

    async def __call__(
        self, ctx: "ServerRequestContext[Any, Any]", call_next: "CallNext"
    ) -> "HandlerResult":
        if ctx.request_id is None or ctx.method == "ping":
            return await call_next(ctx)
        span = self._start_span(ctx)
        try:
            with work_under(span):
                result = await call_next(ctx)
        except MCPError as error:
            _set_code(span, error.error.code)
            raise
        except ValidationError:
            _set_code(span, INVALID_PARAMS)
            raise
        except Exception as error:
            span.fail(error)
            raise
        else:
            if _is_failure(result):
                span.fail(_TOOL_ERROR)
            if ctx.method == "initialize" and ctx.request is None:
                self._measure_session(ctx)
            return result
        finally:
            span.end()

    def _start_span(self, context: "ServerRequestContext[Any, Any]") -> Span:
        request: Any = context.request
        target = (context.params or {}).get("name")
        return start_mcp_server_span(
            self._telemetry,
            context.method,
            tool=target if context.method == "tools/call" and isinstance(target, str) else "",
            request_id=str(context.request_id),
            session_id="" if request is None else request.headers.get(_SESSION_ID, ""),
            protocol_version=context.protocol_version,
            http_version="" if request is None else request.scope.get("http_version", ""),
            client=None if request is None else request.client,
            parent=extract_context(context.meta or {}) or self._find_parent(request),
        )

    def _measure_session(self, context: "ServerRequestContext[Any, Any]") -> None:
        """Record the duration of a stdio session when it ends; HTTP has no sessions."""
        start, telemetry = perf_counter(), self._telemetry

        def record() -> None:
            telemetry.record(
                semconv.MCP_SERVER_SESSION_DURATION,
                perf_counter() - start,
                {semconv.NETWORK_TRANSPORT: "pipe"},
            )

        # there is no public access from a request to its connection
        context.session._connection.exit_stack.callback(record)  # pyright: ignore[reportPrivateUsage]


def _set_code(span: Span, code: int) -> None:
    span.set_attributes({semconv.RPC_RESPONSE_STATUS_CODE: str(code)})
    if code not in _FAULTS_OF_CLIENTS:
        span.fail(str(code))


def _is_failure(result: "HandlerResult") -> bool:
    match result:
        case CallToolResult():
            return bool(result.is_error)
        case {"isError": is_error}:
            return is_error is True
        case _:
            return False
