"""A small MCP server: a library whose books can be looked up and lent.

The runtime in `app.py` starts it by itself. To serve it over HTTP instead:

    python examples/mcp/server.py --http     # http://127.0.0.1:8001/mcp
"""

import sys
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

server: MCPServer[Any] = MCPServer("library")


class Book(BaseModel):
    title: str
    author: str
    lent: bool = False


BOOKS = [
    Book(title="Momo", author="Michael Ende"),
    Book(title="Emma", author="Jane Austen"),
    Book(title="Dracula", author="Bram Stoker", lent=True),
]


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def find_book(title: Annotated[str, Field(description="Its title, as in 'Momo'")]) -> Book:
    """Find a book of the library by its title."""
    for book in BOOKS:
        if book.title.lower() in title.lower():
            return book
    raise ToolError(f"There is no book {title!r}. Known: {', '.join(b.title for b in BOOKS)}.")


@server.tool()
def lend_book(title: Annotated[str, Field(description="Its title, as in 'Emma'")]) -> str:
    """Lend a book of the library to the person who asks."""
    book = find_book(title)
    if book.lent:
        raise ToolError(f"{book.title} is lent already.")
    book.lent = True
    return f"{book.title} by {book.author} is yours for four weeks."


if __name__ == "__main__":
    if "--http" in sys.argv:
        server.run("streamable-http", port=8001)
    else:
        server.run()
