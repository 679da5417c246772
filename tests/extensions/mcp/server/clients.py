"""The client of the package `mcp`, over HTTP and over pipes."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.memory import create_client_server_memory_streams
from mcp_types import CallToolResult, TextContent

from copilot_runtime import Caller, CopilotRuntime
from copilot_runtime.extensions.mcp.server.server import build_server
from tests.wire_agui.http import Browser


@asynccontextmanager
async def over_http(
    browser: Browser,
    headers: Mapping[str, str] | None = None,
    *,
    modern: bool = False,
    **options: Any,
) -> AsyncGenerator[ClientSession, None]:
    """Ask the server at that place, in a session or in the newer way, which knows none."""
    url = f"http://127.0.0.1:{browser.where}{browser.base}/mcp"
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30, **options) as http,
        streamable_http_client(url, http_client=http) as (read, write),
        ClientSession(read, write) as session,
    ):
        await (session.discover() if modern else session.initialize())
        yield session


@asynccontextmanager
async def over_pipes(program: StdioServerParameters) -> AsyncGenerator[ClientSession, None]:
    """Begin a session with a program."""
    async with stdio_client(program) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        yield session


@asynccontextmanager
async def over_memory(runtime: CopilotRuntime) -> AsyncGenerator[ClientSession, None]:
    """Begin a session as a program behind pipes does, with a server of this process."""
    runtime.conversations.open()
    server = build_server(runtime.program_runs, Caller())
    options = server.create_initialization_options()
    async with (
        create_client_server_memory_streams() as (ours, theirs),
        anyio.create_task_group() as group,
    ):
        group.start_soon(server.run, *theirs, options)
        async with ClientSession(*ours) as session:
            await session.initialize()
            yield session
        group.cancel_scope.cancel()
    await runtime.aclose()


def text_of(result: Any) -> str:
    """Return the text of a result that went well."""
    assert isinstance(result, CallToolResult)
    assert not result.is_error, result
    return _text(result)


def failure_of(result: Any) -> str:
    """Return the text of a result that tells of a failure."""
    assert isinstance(result, CallToolResult)
    assert result.is_error, result
    return _text(result)


def _text(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text
