"""Spans of remote procedure calls, by OpenTelemetry's RPC conventions.

https://opentelemetry.io/docs/specs/semconv/rpc/
"""

from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.span import NO_SPAN, Span


def start_rpc_span(
    parent: Span, system: str, method: str, *, host: str = "", port: int | None = None
) -> Span:
    """Start the client span of a call. Its name is the method, such as `hash.Hash/Sha256`."""
    if not parent.is_recording:
        return NO_SPAN
    return parent.start_child(
        method,
        kind="client",
        attributes={
            semconv.RPC_SYSTEM_NAME: system,
            semconv.RPC_METHOD: method,
            semconv.SERVER_ADDRESS: host or None,
            semconv.SERVER_PORT: port,
        },
    )
