"""An MCP server behind pipes, whose tool says by what it knows in which trace it is."""

import json
import os
import sys
from typing import Any

NAMES = ("TRACEPARENT", "TRACESTATE", "OTEL_EXPORTER_OTLP_ENDPOINT")


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a request."""
    match request["method"]:
        case "initialize":
            return {
                "protocolVersion": request["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "environment", "version": "1"},
            }
        case "tools/list":
            return {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}
        case _:
            variables = {name: os.environ[name] for name in NAMES if name in os.environ}
            known = {"variables": variables, "meta": request["params"].get("_meta")}
            return {"content": [{"type": "text", "text": json.dumps(known)}]}


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            reply = {"jsonrpc": "2.0", "id": request["id"], "result": answer(request)}
            print(json.dumps(reply), flush=True)  # noqa: T201
