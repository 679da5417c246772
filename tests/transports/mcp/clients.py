"""The client of the package `mcp`, over HTTP and over pipes."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from tests.wire_agui.http import Browser


@asynccontextmanager
async def over_http(
    browser: Browser, headers: Mapping[str, str] | None = None, *, modern: bool = False
) -> AsyncGenerator[ClientSession, None]:
    """Ask the server at that place, in a session or in the newer way, which knows none."""
    url = f"http://127.0.0.1:{browser.where}{browser.base}/mcp"
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
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
