"""The MCP server behind `/copilotkit-mcp`, spoken to by pipes."""

from typing import Annotated, Any

from mcp.server import MCPServer
from pydantic import Field

server: MCPServer[Any] = MCPServer("echo")


@server.tool(name="mcpEcho", description="Echo.")
def echo(text: Annotated[str, Field(description="what")]) -> str:
    return f"echo {text}"


if __name__ == "__main__":
    server.run()
