"""Tell a client in which trace its answer is, if it asks. Nobody else gets a byte more."""

from collections.abc import Mapping
from typing import Any

from copilot_runtime.runtime.run import Run
from copilot_runtime.transports.request import Request

HEADER = "x-copilot-trace"
"""What a client sends to be told, with the value 1; the property `trace: true` does as well."""
EVENT = "copilot.trace"
"""The custom event of AG-UI that tells it: `{"traceId": …}`."""
_RESPONSE_HEADER = "x-trace-id"


def find_trace_id(
    run: Run, headers: Mapping[str, str], properties: Mapping[str, Any] | None
) -> str:
    """Return the trace of a run; empty if nobody asks, or nothing is traced."""
    wants_it = headers.get(HEADER) == "1" or (properties or {}).get("trace") is True
    return run.trace_id if wants_it else ""


def build_headers(trace_id: str, request: Request) -> dict[str, str]:
    """Return the headers of an answer, which pages of other origins may read as well."""
    if not trace_id:
        return {}
    headers = {_RESPONSE_HEADER: trace_id}
    if any(name == b"access-control-allow-origin" for name, _ in request.response_headers):
        headers["access-control-expose-headers"] = _RESPONSE_HEADER
    return headers
