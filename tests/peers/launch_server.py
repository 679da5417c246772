"""A server whose agent asks before it launches: `python -m tests.peers.launch_server FOLDER`.

It prints its port on a line of its own, and writes each launch into a file of the folder.
"""

import asyncio
import socket
import sys
from pathlib import Path

import uvicorn

from copilot_runtime import CopilotRuntime, Settings
from tests.peers.rocket import build_launcher


def serve(folder: Path) -> None:
    """Serve on a port of the system's choice, until the end."""

    def launch(rocket: str) -> None:
        with (folder / "launches").open("a") as file:
            file.write(f"{rocket}\n")

    settings = Settings(log_level="error", console=False, threads=f"sqlite:{folder / 'threads.db'}")
    runtime = CopilotRuntime(agents={"it": build_launcher(launch)}, settings=settings)
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(runtime.app("/copilot"), log_level="error")
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
