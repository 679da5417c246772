"""The largest inputs of each kind do not stop the event loop: `plugin/stalls.py` fails them."""

import json
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.adapters.openai import OpenAIAdapter
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.api.events import ActionExecutionResult
from copilot_runtime.testing.connection import connect
from tests.extensions.analyst.analysts import ask, build_analyst, run_agent

pytestmark = pytest.mark.anyio

MEGABYTE = 1024 * 1024
FORM = "application/x-www-form-urlencoded"
JSON = "application/json"
LATENCIES = ", ".join(["latency"] * 2_200)
STATEMENTS = {
    "misspelt": "SELECT {} FROM orders".format(", ".join(["amuont"] * 2_200)),
    "types": f"SELECT 1 FROM orders WHERE amount IN ({LATENCIES})",
    "functions": "SELECT {} FROM orders".format(", ".join(["abs(amount)"] * 1_500)),
    "pivots": "SELECT * FROM orders" + " PIVOT(sum(amount) FOR city IN ('a'))" * 500,
}


@pytest.mark.parametrize("sql", STATEMENTS.values(), ids=STATEMENTS)
async def test_the_longest_sql_is_read_and_repaired_beside_the_loop(
    tmp_path: Path, sql: str
) -> None:
    analyst = build_analyst(tmp_path)

    events = await run_agent(analyst, ask("How?"), call("run_sql", {"sql": sql}), say("So."))

    assert any(isinstance(event, ActionExecutionResult) for event in events)
    await analyst.aclose()


def build_run(**fields: Any) -> bytes:
    run: dict[str, Any] = {"threadId": "t", "runId": "r", "state": {}, "context": [], "tools": []}
    run |= {"messages": [{"id": "1", "role": "user", "content": "Hi."}], "forwardedProps": {}}
    return json.dumps(run | fields).encode()


def build_tools(count: int) -> list[dict[str, Any]]:
    text = {"type": "string", "description": "A text."}
    schema = {"type": "object", "properties": {f"p{at}": text for at in range(200)}}
    names = [f"tool{at}" for at in range(count)]
    return [{"name": one, "description": "", "parameters": schema} for one in names]


def ask_a2a(message: str) -> bytes:
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    return json.dumps(call).encode()


RUN = "/graphql/agent/default/run"
LONG_NUMBERS = b"[" + b",".join([b"9" * 4_000] * 3_900) + b"]"
REQUESTS = {
    "form": ("/graphql", FORM, b"query=" + b"%41" * (5 * MEGABYTE), 413),
    "half": (RUN, JSON, b'"' + rb"\\x" * (5 * MEGABYTE) + rb'\ud83d"', 400),
    "halves": (RUN, JSON, b'"' + rb"\ud83d x" * (2 * MEGABYTE - 8) + b'"', 400),
    "schemas": (RUN, JSON, build_run(tools=build_tools(380)), 200),
    "keys": (RUN, JSON, build_run(forwardedProps={f"k{at}": at for at in range(240_000)}), 200),
    "secrets": (RUN, JSON, build_run(forwardedProps={"key": ["x1" * 200] * 38_000}), 200),
    "letters": (RUN, JSON, build_run(forwardedProps={"a": ["x" * 4_000] * 3_800}), 200),
    "numbers of MCP": ("/graphql/mcp", JSON, LONG_NUMBERS, 400),
    "keys of MCP": (
        "/graphql/mcp",
        JSON,
        json.dumps({"k" * 55 + f"{at}": 1 for at in range(230_000)}).encode(),
        400,
    ),
    "text of A2A": ("/graphql/a2a/default", JSON, ask_a2a("x" * 15 * MEGABYTE), 413),
}


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
async def test_the_largest_requests_do_not_stop_the_loop(
    request_: tuple[str, str, bytes, int],
) -> None:
    path, content_type, body, status = request_
    model = OpenAIAdapter(model="m", api_key="k", base_url="http://127.0.0.1:9/v1", max_retries=0)
    settings = Settings(threads="memory", serve_mcp=True, serve_a2a=True)
    async with connect(CopilotRuntime(model, settings=settings).app(), 60) as app:
        response = await app.request("POST", path, body, {"content-type": content_type})

    assert response.status == status, response.body[:200]
