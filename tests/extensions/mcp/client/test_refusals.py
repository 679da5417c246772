"""Servers that refuse: to one run, by SSE, and to say goodbye."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from copilot_runtime.base.errors import CopilotError, NetworkError
from copilot_runtime.extensions.mcp.client import McpServer
from copilot_runtime.extensions.mcp.client.pool import SessionPool
from tests.extensions.mcp.client.conftest import CONTEXT, Ask, tool
from tests.extensions.mcp.client.servers import serve
from tests.wire_agui.server import serving

pytestmark = pytest.mark.anyio


@dataclass
class Shop:
    """A server whose tool `pay` is slow and says it failed, and whose tool `look` is forgotten.

    It is also slow to say goodbye.
    """

    port: int = 0
    paid: int = 0
    paying: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: Request) -> Response:
        if request.method == "DELETE":
            await self.go_on.wait()
        if request.method != "POST":
            return Response(status_code=405)
        asked = await request.json()
        match asked:
            case {"method": "initialize", "params": {"protocolVersion": version}}:
                info = {"name": "shop", "version": "1"}
                result: dict[str, Any] = {"capabilities": {"tools": {}}, "serverInfo": info}
                return said(asked, result={**result, "protocolVersion": version})
            case {"method": "tools/list"}:
                return said(asked, result={"tools": [tool("pay"), tool("look")]})
            case {"params": {"name": "pay"}}:
                self.paid += 1
                self.paying.set()
                await self.go_on.wait()
                return said(asked, error={"code": -32000, "message": "Paid, without a receipt"})
            case {"params": {"name": "look"}}:
                return Response(status_code=404)
            case _:
                return Response(status_code=202)


def said(asked: dict[str, Any], **answer: Any) -> Response:
    return JSONResponse(
        {"jsonrpc": "2.0", "id": asked["id"], **answer}, headers={"mcp-session-id": "s"}
    )


@asynccontextmanager
async def open_shop() -> AsyncGenerator[Shop, None]:
    shop = Shop()
    routes = [Route("/mcp", shop.answer, methods=["GET", "POST", "DELETE"])]
    async with serving(Starlette(routes=routes)) as shop.port:
        yield shop


async def test_a_call_is_not_repeated_because_another_was_refused(ask: Ask) -> None:
    async with open_shop() as shop:
        asked = ask(McpServer(f"http://127.0.0.1:{shop.port}/mcp"))
        actions = await asked.actions()
        assert actions["pay"].run is not None
        assert actions["look"].run is not None

        paying = asyncio.ensure_future(actions["pay"].run({}, CONTEXT))
        await shop.paying.wait()
        with pytest.raises(NetworkError, match="does not know the session"):
            await actions["look"].run({}, CONTEXT)
        shop.go_on.set()  # also to say goodbye

        with pytest.raises(CopilotError, match="Paid, without a receipt"):
            await paying
        assert shop.paid == 1
        await asked.source.aclose()


async def test_a_session_ends_although_the_server_does_not_say_goodbye(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.mcp.client.session.CLOSE_TIMEOUT", 0.1)
    pool = SessionPool(idle=0.01)
    async with open_shop() as shop:
        async with pool.session(McpServer(f"http://127.0.0.1:{shop.port}/mcp"), {}) as session:
            pass

        await asyncio.wait([session.task])

        assert session.task.done()
        shop.go_on.set()


async def test_a_call_that_an_sse_server_refuses_fails_at_once(ask: Ask) -> None:
    async with serve(sse=True) as served:
        asked = ask(McpServer(served.url))
        echo = (await asked.actions())["mcpEcho"]
        assert echo.run is not None
        served.refuse = 500

        with pytest.raises(NetworkError, match="broke off"):
            await echo.run({"text": "hey"}, CONTEXT)

        served.refuse = 0
        assert await asked.do("mcpEcho", text="again") == "echo again"
        await asked.source.aclose()
