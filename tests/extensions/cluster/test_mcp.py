"""MCP clients and several server processes: any process answers any request of any client."""

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest

from copilot_runtime import Settings
from tests.extensions.mcp.server.clients import over_http, text_of
from tests.extensions.mcp.server.test_mcp_server import ACCEPT, CALLING, CANCELLING, GREETING
from tests.processes import Program, running
from tests.transports.served import Slow
from tests.wire_agui.http import Browser
from tests.wire_agui.server import PATH, browsing

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]
CONNECTIONS = 6
"""Requests on connections of their own: the system spreads them over the workers."""


async def test_a_call_is_cancelled_through_another_server(shared: Mapping[str, Any]) -> None:
    slow = Slow()
    settings = Settings(**shared, serve_mcp=True)
    async with (
        browsing(settings=settings, agents={"slow": slow}) as first,
        browsing(settings=settings, agents={"slow": Slow()}) as second,
        httpx2.AsyncClient(headers=ACCEPT, timeout=30) as http,
    ):
        urls = [f"http://127.0.0.1:{it.where}{PATH}/mcp" for it in (first, second)]
        begun = await http.post(urls[1], json=GREETING)
        session = {"mcp-session-id": begun.headers["mcp-session-id"]}
        call = asyncio.create_task(http.post(urls[0], json=CALLING, headers=session))
        await slow.gate.wait_for_event()
        body = {**CANCELLING, "params": {"requestId": CALLING["id"]}}
        await http.post(urls[1], json=body, headers=session)
        await slow.left.wait()
        answer = await call

    assert "Request cancelled" in answer.text


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    target = f"{ROOT}/tests/extensions/cluster/worker_names.py:runtime"
    words = [sys.executable, "-m", "copilot_runtime", "serve", target, "--workers", "2"]
    words += ["--port", "0", "--path", "/copilotkit"]
    environ = {**os.environ, "COPILOT_THREADS": "sqlite:threads.db", "COPILOT_SERVE_MCP": "true"}
    with running(words, cwd=tmp_path, env=environ) as program:
        yield program


async def test_every_worker_answers_the_client_of_any(program: Program) -> None:
    where = int(program.until(r"runtimeUrl  http://127.0.0.1:(\d+)/copilotkit")[1])
    apart = httpx2.Limits(max_keepalive_connections=0)
    names: dict[bool, set[str]] = {True: set(), False: set()}
    tools: list[str] = []
    for modern in names:
        async with over_http(Browser(where), modern=modern, limits=apart) as session:
            for _ in range(10 * CONNECTIONS):
                tools = [tool.name for tool in (await session.list_tools()).tools]
                names[modern].add(text_of(await session.call_tool("name_process")))
                if len(names[modern]) == 2:
                    break

    assert tools == ["name_process"]
    assert len(names[True]) == 2
    assert names[True] == names[False]
