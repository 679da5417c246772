"""A real MCP server with user interfaces, and runtimes that have it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from copilot_runtime import McpServer
from copilot_runtime.extensions.generative_ui.options import McpApps, McpAppServer
from tests.wire_agui.http import Browser, run_input
from tests.wire_agui.server import serving

CARD = "ui://weather/card.html"


@dataclass
class Weather:
    """The server, and what was called on it."""

    port: int = 0
    calls: list[str] = field(default_factory=list[str])
    page: str = "<!doctype html><p id=x></p>"
    path: str = "/mcp"

    def apps(self, **options: Any) -> McpApps:
        server = McpServer(f"http://127.0.0.1:{self.port}{self.path}")
        return McpApps(servers=[McpAppServer(server=server, id="weather")], **options)


@asynccontextmanager
async def serve_weather(*, sse: bool = False, **options: Any) -> AsyncGenerator[Weather, None]:
    """Serve tools of each kind: for both, for models only, for apps only, and without a page."""
    weather = Weather(path="/sse" if sse else "/mcp")
    mcp: MCPServer[Any] = MCPServer("weather")

    def ui(*visibility: str) -> dict[str, Any]:
        return {"ui": {"resourceUri": CARD} | ({"visibility": visibility} if visibility else {})}

    @mcp.tool(meta=ui())
    def show_weather(city: str) -> str:
        weather.calls.append(f"show {city}")
        return f"Weather in {city}: 21"

    @mcp.tool(meta=ui("model"))
    def model_only() -> str:
        weather.calls.append("model_only")
        return "for models"

    @mcp.tool(meta=ui("app"))
    def refresh() -> str:
        weather.calls.append("refresh")
        return "22"

    @mcp.tool(meta={"ui/resourceUri": CARD})
    def fail() -> str:
        raise ToolError("the disk of secret-backend is full")

    @mcp.tool(meta=ui())
    def large() -> str:
        return "x" * 10_000_000

    @mcp.tool()
    def delete_everything() -> str:
        weather.calls.append("delete_everything")
        return "deleted"

    @mcp.resource(CARD, mime_type="text/html;profile=mcp-app")
    def card() -> str:
        return weather.page

    @mcp.resource("file:///etc/passwd")
    def passwords() -> str:
        weather.calls.append("file")
        return "root:x:0:0"

    app = mcp.sse_app() if sse else mcp.streamable_http_app(**options)
    async with serving(app) as weather.port:
        yield weather


async def ask_server(browser: Browser, request: Any, agent: str = "it", **fields: Any) -> Any:
    """Send what an app asks as the page does, and return the result."""
    properties = {"__proxiedMCPRequest": request}
    events = (await browser.run(agent=agent, forwardedProps=properties, **fields)).events()
    assert [event["type"] for event in events] == ["RUN_STARTED", "RUN_FINISHED"], events
    assert run_input(**fields)["threadId"] == events[0]["threadId"]
    return events[1]["result"]


def call_tool(name: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    return {"serverId": "weather", "serverHash": "x", "method": "tools/call", "params": params}


def read_resource(uri: str, **fields: Any) -> dict[str, Any]:
    return {"serverId": "weather", "method": "resources/read", "params": {"uri": uri}, **fields}
