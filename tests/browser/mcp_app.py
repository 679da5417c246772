"""An MCP server with an app that uses its host, and tries what no app may."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp.server import MCPServer

from copilot_runtime import McpServer
from copilot_runtime.extensions.generative_ui.options import McpApps, McpAppServer
from tests.wire_agui.server import serving

CARD = "ui://weather/card.html"

PAGE = Path(__file__).with_name("weather_app.html")


@dataclass
class WeatherServer:
    """The server, and what was called on it."""

    port: int = 0
    calls: list[str] = field(default_factory=list[str])

    def apps(self) -> McpApps:
        server = McpServer(f"http://127.0.0.1:{self.port}/mcp")
        return McpApps(servers=[McpAppServer(server=server, id="weather")])


@asynccontextmanager
async def serve_app() -> AsyncGenerator[WeatherServer, None]:
    """Serve a tool with a page, one for the page alone, and one that is for neither."""
    weather = WeatherServer()
    mcp: MCPServer[Any] = MCPServer("weather")

    @mcp.tool(meta={"ui": {"resourceUri": CARD}})
    def show_weather(city: str) -> str:
        return f"21 degrees in {city}"

    @mcp.tool(meta={"ui": {"resourceUri": CARD, "visibility": ["app"]}})
    def refresh() -> str:
        weather.calls.append("refresh")
        return "22 degrees"

    @mcp.tool()
    def delete_everything() -> str:
        weather.calls.append("delete_everything")
        return "deleted"

    @mcp.resource(CARD, mime_type="text/html;profile=mcp-app")
    def card() -> str:
        return PAGE.read_text()

    async with serving(mcp.streamable_http_app()) as weather.port:
        yield weather
