"""An MCP server with a user interface: the seats of a ship, for models and for people.

    python examples/generative-ui/seats.py     # http://127.0.0.1:8001/mcp

The result of `choose_seat` is shown by the page `seats.html`, which calls the tools that are for
apps. Specification: https://github.com/modelcontextprotocol/ext-apps.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

PAGE = "ui://seats/plan.html"
ROWS, LETTERS = range(1, 7), "ABCD"
TAKEN = frozenset({"1A", "1D", "2B", "3C", "3D", "5A"})

Ship = Annotated[Literal["MV Tern", "MV Gannet"], Field(description="The ship, as in 'MV Tern'")]

server: MCPServer[Any] = MCPServer("seats")
reserved: dict[str, str] = {}
"""The seat of the person in front of the page, on each ship: this server knows only one."""


def ui(*visibility: str) -> dict[str, Any]:
    """Return what says that a tool has a page, and who may call it."""
    return {"ui": {"resourceUri": PAGE, "visibility": visibility}}


@server.tool(meta=ui("model", "app"))
def choose_seat(ship: Ship) -> str:
    """Show the seats of a ship, so that the person can take one."""
    free = [seat for seat in _seats() if seat not in TAKEN]
    return f"The seats of {ship} are shown. Free: {', '.join(free)}."


@server.tool(meta=ui("app"))
def list_seats(ship: Ship) -> str:
    """List all seats, who has them, and which one is the person's: JSON for the page."""
    return json.dumps(
        {"seats": [*_seats()], "taken": sorted(TAKEN), "reserved": reserved.get(ship)}
    )


@server.tool(meta=ui("app"))
def reserve_seat(ship: Ship, seat: str) -> str:
    """Reserve a seat for the person, in place of the one before."""
    if seat in TAKEN or seat not in _seats():
        raise ToolError(f"Seat {seat!r} of {ship} is not free.")
    reserved[ship] = seat
    return f"Seat {seat} of {ship} is yours."


@server.tool()
def cancel_sailing(ship: Ship) -> str:
    """Cancel a sailing: a tool for the staff, which has no page."""
    return f"The sailing of {ship} is cancelled."


@server.resource(PAGE, mime_type="text/html;profile=mcp-app")
def plan() -> str:
    """The page: HTML, style and script in one."""
    return (Path(__file__).parent / "seats.html").read_text(encoding="utf-8")


def _seats() -> list[str]:
    return [f"{row}{letter}" for row in ROWS for letter in LETTERS]


if __name__ == "__main__":
    server.run("streamable-http", port=8001)
