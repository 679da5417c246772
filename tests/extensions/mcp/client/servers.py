"""A real MCP server with tools of every kind, by pipes if run as a program."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.wire_agui.server import serving

COMMAND = [sys.executable, "-m", "tests.extensions.mcp.client.servers"]

PNG = b"\x89PNG\r\n\x1a\n"


class Place(BaseModel):
    """Where something is."""

    street: str
    kind: Literal["home", "work"] = "home"


@dataclass
class Served:
    """An MCP server on loopback, and what happened in it."""

    mcp: MCPServer[Any] = field(default_factory=lambda: MCPServer("test"))
    port: int = 0
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    """Of each request, in order."""
    methods: list[str] = field(default_factory=list[str])
    """Of the protocol, as they were called."""
    refuse: int = 0
    """A status to answer everything with."""
    location: str = ""
    """Where that sends people."""
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while it answers; else everybody waits."""
    modern: bool = False
    """Whether it refuses the handshake, as servers will that know no sessions."""
    packs: bool = False
    """Whether it compresses what it says."""
    path: str = "/mcp"
    began: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def sessions(self) -> int:
        """How many were opened."""
        return self.methods.count("initialize")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.path}"


def build(served: Served) -> MCPServer[Any]:
    mcp = served.mcp

    @mcp.tool(name="mcpEcho", description="Echo.")
    def echo(text: Annotated[str, Field(description="what")]) -> str:
        return f"echo {text}"

    @mcp.tool(annotations=ToolAnnotations(read_only_hint=True))
    def find(places: list[Place], limit: int = 3) -> dict[str, Any]:
        """Find places."""
        return {"streets": [place.street for place in places][:limit]}

    @mcp.tool()
    def boom() -> str:
        """Fail."""
        raise ToolError("The disk is full.")

    @mcp.tool()
    def picture() -> Image:
        """Draw."""
        return Image(data=PNG, format="png")

    @mcp.tool()
    def variable(name: str) -> str:
        """Read a variable of the environment."""
        return os.environ.get(name, "unset")

    @mcp.tool()
    def large() -> str:
        """Say very much."""
        return "x" * 10_000_000

    @mcp.tool()
    async def slowly(steps: int, pause: float, context: Context) -> str:
        """Work, and tell of progress."""
        for step in range(steps):
            await asyncio.sleep(pause)
            await context.report_progress(step, steps)
        return "done"

    @mcp.tool()
    async def forever() -> str:
        """Never end."""
        served.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            served.cancelled.set()
            raise
        return ""

    @mcp.tool()
    async def wait_for_cancellation() -> str:
        """Return once `forever` was cancelled."""
        await served.cancelled.wait()
        return "It was cancelled."

    @mcp.tool()
    async def learn(name: str, context: Context) -> str:
        """Have another tool from now on."""
        mcp.add_tool(lambda: f"I am {name}", name=name, description="New.")
        await context.session.send_tool_list_changed()
        return "learned"

    @mcp.resource("notes://today", mime_type="text/plain")
    def today() -> str:
        """What there is to do."""
        return "Water the plants."

    @mcp.resource("secret://key")
    def secret() -> str:
        """Not for models."""
        return "hunter2"

    @mcp.prompt()
    def greet(who: str) -> str:
        """Greet somebody."""
        return f"Say hello to {who}."

    return mcp


@asynccontextmanager
async def serve(*, sse: bool = False, **options: Any) -> AsyncGenerator[Served, None]:
    """Serve over HTTP on a free port of loopback."""
    served = Served(path="/sse" if sse else "/mcp")
    served.answers.set()
    mcp = build(served)
    app = mcp.sse_app() if sse else mcp.streamable_http_app(**options)
    async with serving(_noting(app, served)) as served.port:
        yield served


def _noting(app: ASGIApp, served: Served) -> ASGIApp:
    async def noted(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await app(scope, receive, send)
        request = Request(scope, receive)
        body = await request.body()
        served.headers.append(dict(request.headers))
        method = json.loads(body)["method"] if body else ""
        served.methods.append(method)
        await served.answers.wait()
        if served.refuse or (served.modern and method == "initialize"):
            headers = {"location": served.location} if served.location else {}
            refusal = Response(status_code=served.refuse or 404, headers=headers)
            return await refusal(scope, receive, send)
        if served.packs:  # although nobody wants it
            others = [it for it in scope["headers"] if it[0] != b"accept-encoding"]
            scope["headers"] = [*others, (b"accept-encoding", b"gzip")]
        given = False

        async def again() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        packing = GZipMiddleware(app, minimum_size=0)
        return await (packing if served.packs else app)(scope, again, send)

    return noted


if __name__ == "__main__":
    build(Served()).run()
