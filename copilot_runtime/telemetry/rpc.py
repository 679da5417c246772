"""Spans of remote procedure calls, by OpenTelemetry's conventions for RPC and for MCP.

https://opentelemetry.io/docs/specs/semconv/rpc/
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast

from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.context import SpanContext
from copilot_runtime.telemetry.genai import MAX_NAME, describe_server
from copilot_runtime.telemetry.span import NO_SPAN, Span
from copilot_runtime.telemetry.telemetry import Telemetry

_MCP_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")
_LONGEST_ID = 128

Counts = Mapping[str, int]


def start_rpc_span(parent: Span, method: str, *, host: str = "", port: int | None = None) -> Span:
    """Start the client span of a call. Its name is the method, such as `hash.Hash/Sha256`."""
    return parent.start_child(
        method,
        kind="client",
        attributes={
            **describe_rpc(method),
            semconv.SERVER_ADDRESS: host or None,
            semconv.SERVER_PORT: port,
        },
    )


def describe_rpc(method: str) -> dict[str, Any]:
    """Return the attributes of a call, on the client's and on the server's span.

    `rpc.service` is that of Copilot-LD and of earlier conventions, which `rpc.method` contains.
    """
    return {
        semconv.RPC_SYSTEM_NAME: "grpc",
        semconv.RPC_SERVICE: method.rpartition("/")[0] or None,
        semconv.RPC_METHOD: method,
    }


def count_items(side: Literal["request", "response"], message: Any) -> Counts:
    """Return the numbers of items in the lists of a message, such as `request.messages`.

    The message is one of Protocol Buffers, or a mapping.
    """
    if isinstance(message, Mapping):
        fields: Iterable[tuple[str, Any]] = cast("Mapping[str, Any]", message).items()
    else:
        fields = ((field.name, value) for field, value in message.ListFields())
    return {f"{side}.{name}": len(value) for name, value in fields if _is_list(value)}


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def describe_mcp_call(server: str, url: str, method: str = "tools/call") -> dict[str, Any]:
    """Return the attributes of an MCP server for the span of a tool call.

    The call has no separate client span. `server` is the server's label, and `url` its address;
    a server on stdio has none.
    """
    return {semconv.TOOL_LOCATION: "mcp", **_describe_mcp_request(server, url, method)}


def start_mcp_client_span(parent: Span, server: str, url: str, method: str) -> Span:
    """Start the span of a request to an MCP server other than a tool call: `tools/list`."""
    if not parent.is_recording:
        return NO_SPAN
    attributes = _describe_mcp_request(server, url, method)
    return parent.start_child(method, kind="client", attributes=attributes)


def start_mcp_request_span(
    telemetry: Telemetry, server: str, url: str, method: str, parent: SpanContext | None = None
) -> Span:
    """Start the span of a request to an MCP server outside of any agent run."""
    if not telemetry.is_recording:
        return NO_SPAN
    attributes = _describe_mcp_request(server, url, method)
    return telemetry.start_span(method, kind="client", parent=parent, attributes=attributes)


def name_tool(span: Span, tool: str) -> None:
    """Set the tool on the span of a request. The caller has checked that the tool exists."""
    if span.is_recording:
        tool = tool[:MAX_NAME]
        span.name = f"{semconv.EXECUTE_TOOL} {tool}"
        span.set_attributes({semconv.OPERATION_NAME: semconv.EXECUTE_TOOL, semconv.TOOL_NAME: tool})


def _describe_mcp_request(server: str, url: str, method: str) -> dict[str, Any]:
    return {
        semconv.MCP_METHOD_NAME: method,
        semconv.TOOL_SERVER: server,
        semconv.NETWORK_TRANSPORT: "tcp" if url else "pipe",
        semconv.NETWORK_PROTOCOL_NAME: "http" if url else None,
        **describe_server(url),
    }


def start_mcp_server_span(
    telemetry: Telemetry,
    method: str,
    *,
    tool: str = "",
    request_id: str = "",
    session_id: str = "",
    protocol_version: str = "",
    http_version: str = "",
    client: tuple[str, int] | None = None,
    parent: SpanContext | None = None,
) -> Span:
    """Start the span of a request of an MCP client: `{method} {tool}`.

    `http_version` is empty on stdio. A tool name that violates MCP's rule is left out: clients
    may send anything.
    """
    tool = tool if _MCP_NAME.fullmatch(tool) else ""
    method = method if _MCP_NAME.fullmatch(method) else semconv.ERROR_TYPE_OTHER
    host, port = client or (None, None)
    return telemetry.start_span(
        f"{method} {tool}".rstrip(),
        kind="server",
        parent=parent,
        attributes={
            semconv.MCP_METHOD_NAME: method,
            semconv.OPERATION_NAME: semconv.EXECUTE_TOOL if method == "tools/call" else None,
            semconv.TOOL_NAME: tool or None,
            semconv.JSONRPC_REQUEST_ID: request_id[:_LONGEST_ID] or None,
            semconv.MCP_SESSION_ID: session_id[:_LONGEST_ID] or None,
            semconv.MCP_PROTOCOL_VERSION: protocol_version or None,
            semconv.NETWORK_TRANSPORT: "tcp" if http_version else "pipe",
            semconv.NETWORK_PROTOCOL_NAME: "http" if http_version else None,
            semconv.NETWORK_PROTOCOL_VERSION: http_version or None,
            semconv.CLIENT_ADDRESS: host,
            semconv.CLIENT_PORT: port,
        },
    )


def omit_tool(span: Span) -> None:
    """Replace an unknown tool's name on the span of an MCP request by `_OTHER`.

    Clients may invent any number of names.
    """
    if semconv.TOOL_NAME in span.attributes:
        span.name = f"{span.attributes[semconv.MCP_METHOD_NAME]} {semconv.ERROR_TYPE_OTHER}"
        span.set_attributes({semconv.TOOL_NAME: semconv.ERROR_TYPE_OTHER})
