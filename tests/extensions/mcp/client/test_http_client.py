"""Servers asked by a client of the host application: of httpx, or of httpx2."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import httpx
import httpx2
import pytest

from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.extensions.mcp.client import McpActions, McpServer
from copilot_runtime.extensions.mcp.client.source import McpAllowlist
from tests.extensions.mcp.client.conftest import Ask, Asked
from tests.extensions.mcp.client.servers import Served, serve
from tests.extensions.mcp.client.test_named import named
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[httpx, httpx2], ids=["httpx", "httpx2"])
async def client(anyio_backend: str, request: pytest.FixtureRequest) -> AsyncGenerator[Any, None]:
    """Return a client with a header, an agent's name and a login of its own."""
    del anyio_backend
    async with open_client(request.param) as client:
        yield client


@asynccontextmanager
async def open_client(library: ModuleType) -> AsyncGenerator[Any, None]:
    async with library.AsyncClient(
        headers={"x-host": "app", "user-agent": "app/1"}, auth=("ann", "secret"), trust_env=False
    ) as client:
        yield client


@pytest.mark.parametrize("sse", [False, True], ids=["http", "sse"])
async def test_every_request_uses_the_applications_client_which_stays_open(
    ask: Ask, client: Any, sse: bool
) -> None:
    async with serve(sse=sse) as served:
        asked = ask(McpServer(served.url, headers={"x-key": "k"}, http_client=client))
        assert await asked.do("mcpEcho", text="hi") == "echo hi"
        await asked.source.aclose()

    sent = {
        (request["x-host"], request["user-agent"], request["x-key"]) for request in served.headers
    }
    assert sent == {("app", "app/1", "k")}
    assert all(request["authorization"].startswith("Basic ") for request in served.headers)
    assert not client.is_closed


async def test_an_authorization_of_the_server_takes_the_place_of_the_clients(
    ask: Ask, served: Served, client: Any
) -> None:
    asked = ask(McpServer(served.url, headers={"authorization": "Bearer k"}, http_client=client))
    await asked.actions()
    assert {request["authorization"] for request in served.headers} == {"Bearer k"}


async def test_the_key_of_a_page_is_not_sent_with_the_login_of_the_application(
    served: Served, client: Any
) -> None:
    source = McpActions(McpAllowlist([McpServer(served.url, http_client=client)]))
    assert "mcpEcho" in await Asked(source).actions(
        named({"endpoint": served.url, "apiKey": "page"})
    )
    await source.aclose()
    assert {request["authorization"] for request in served.headers} == {"Bearer page"}


async def test_one_address_by_two_clients_has_two_sessions(ask: Ask, served: Served) -> None:
    async with open_client(httpx) as one, open_client(httpx2) as other:
        asked = ask(
            McpServer(served.url, http_client=one),
            McpServer(served.url, http_client=other, prefix="other_"),
        )
        assert {"mcpEcho", "other_mcpEcho"} <= {*await asked.actions()}
        await asked.source.aclose()
    assert served.sessions == 2


async def test_a_message_that_is_too_large_is_refused_by_any_client(
    ask: Ask, served: Served, client: Any
) -> None:
    asked = ask(McpServer(served.url, http_client=client))
    with pytest.raises(CopilotError, match=r"4194304 byte"):
        await asked.do("large")
    assert await asked.do("mcpEcho", text="again") == "echo again"


async def test_a_server_that_is_down_is_left_out(
    ask: Ask, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    asked = ask(McpServer("http://127.0.0.1:9/mcp", http_client=client))
    assert await asked.actions() == {}
    assert "The MCP server '127.0.0.1' is left out of this run." in caplog.text


@in_one_test("options", [{"command": ["server"]}, {"url": "http://mcp.test/", "public_only": True}])
async def test_a_client_that_would_not_be_used_is_refused(
    client: Any, options: dict[str, Any]
) -> None:
    with pytest.raises(ConfigurationFailed, match="cannot have an http_client"):
        McpServer(http_client=client, **options)
