"""An MCP server of somebody else, by hand, whose answers a test writes."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from copilot_runtime import McpServer
from copilot_runtime.extensions.generative_ui.options import McpApps, McpAppServer
from tests.wire_agui.server import serving

PAGE = "ui://rogue/page.html"

Answer = Callable[[dict[str, Any]], Any]


@dataclass
class Rogue:
    """The server, and what it was asked; `answers` are results, or whole responses, by method."""

    port: int = 0
    visits: int = 0
    last_id: int = 0
    asked: list[str] = field(default_factory=list[str])
    headers: list[str] = field(default_factory=list[str])
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    hanging: set[str] = field(default_factory=set[str])
    """Methods that are not answered until the test ends."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def forget(self) -> None:
        """Be as before the first case of a test, for the next one."""
        self.asked.clear()

    def apps(self, **options: Any) -> McpApps:
        return McpApps(servers=[self.server()], **options)

    def server(self, **options: Any) -> McpAppServer:
        return McpAppServer(server=McpServer(self.url, **options), id="rogue")

    async def reply(self, request: Request) -> Response:
        self.visits += 1
        if (url := request.query_params.get("to")) is not None:
            return RedirectResponse(url, status_code=int(request.query_params["status"]))
        if request.method != "POST":
            return Response(status_code=405)
        message = await request.json()
        self.asked.append(method := message["method"])
        self.headers.append(request.headers.get("authorization", ""))
        if "id" not in message:
            return Response(status_code=202)
        self.last_id = message["id"]
        if method in self.hanging:
            await asyncio.Event().wait()
        result = self._answer(method, message.get("params") or {})
        if isinstance(result, Response):
            return result
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def _answer(self, method: str, params: dict[str, Any]) -> Any:
        if method in self.answers:
            return self.answers[method](params)
        match method:
            case "initialize":
                return {
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {}, "resources": {}},
                    "serverInfo": {"name": "rogue", "version": "1"},
                }
            case "tools/list":
                return {"tools": [build_tool("work")]}
            case "tools/call":
                return {"content": [{"type": "text", "text": "done"}]}
            case _:
                return {"contents": [{"uri": PAGE, "text": "<p>"}]}


def build_tool(name: str, **ui: Any) -> dict[str, Any]:
    meta = {"ui": {"resourceUri": PAGE, **ui}}
    return {"name": name, "inputSchema": {"type": "object"}, "_meta": meta}


def nest(depth: int, id: int) -> Response:
    """Return a response with a result whose text is nested so deeply."""
    deep = "[" * depth + "]" * depth
    result = f'{{"content":[],"structuredContent":{{"x":{deep}}}}}'
    body = f'{{"jsonrpc":"2.0","id":{id},"result":{result}}}'
    return Response(body, media_type="application/json")


def stream_for_ever() -> Response:
    """Return an event that never ends."""

    async def pieces() -> AsyncIterator[bytes]:
        yield b"event: message\ndata: "
        while True:
            yield b"x" * 65_536
            await asyncio.sleep(0)  # sending to who has left does not wait

    return StreamingResponse(pieces(), media_type="text/event-stream")


def redirect(url: str) -> Response:
    return RedirectResponse(url, status_code=307)


@asynccontextmanager
async def serve_rogue() -> AsyncGenerator[Rogue]:
    rogue = Rogue()
    app = Starlette(routes=[Route("/mcp", rogue.reply, methods=["GET", "POST", "DELETE"])])
    async with serving(app) as rogue.port:
        yield rogue
