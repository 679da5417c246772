"""Servers in programs of their own, which tests may kill."""

import asyncio
import socket
import sys
from typing import Any

import uvicorn


def serve_program(app: Any) -> None:
    """Serve on a port of the system's choice, which is printed on a line of its own."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(app, log_level="error")
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))
