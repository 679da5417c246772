"""Send the trace identifier of an answer to clients that request it, and nothing to others."""

from collections.abc import Mapping
from typing import Any

from copilot_runtime.runtime.run import Run
from copilot_runtime.transports.request import Request

HEADER = "x-copilot-trace"
"""Header with which a client requests the identifier (value 1); the property `trace: true` does the
same."""
EVENT = "copilot.trace"
"""The custom AG-UI event that contains the identifier: `{"traceId": …}`."""
_RESPONSE_HEADER = "x-trace-id"


def find_trace_id(
    run: Run, headers: Mapping[str, str], properties: Mapping[str, Any] | None
) -> str:
    """Return the trace identifier of a run; empty if not requested or not traced."""
    wants_it = headers.get(HEADER) == "1" or (properties or {}).get("trace") is True
    return run.trace_id if wants_it else ""


def build_headers(trace_id: str, request: Request) -> dict[str, str]:
    """Return the response headers, exposed to pages of other origins as well."""
    if not trace_id:
        return {}
    headers = {_RESPONSE_HEADER: trace_id}
    if any(name == b"access-control-allow-origin" for name, _ in request.response_headers):
        headers["access-control-expose-headers"] = _RESPONSE_HEADER
    return headers
