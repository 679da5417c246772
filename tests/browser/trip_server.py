"""A server of `examples/react-v2` in a process of its own, which may end and come back."""

import argparse
import asyncio
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from copilot_runtime import CopilotRuntime, OpenAIAdapter
from copilot_runtime.threads.url import build_store
from tests.browser.build import one_origin
from tests.processes import running

ROOT = Path(__file__).parents[2]


class TripServer:
    """The process inherits a socket that listens already: who connects early waits."""

    def __init__(self, listener: socket.socket, page: Path, model: str, threads: Path) -> None:
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self._listener = listener
        self._arguments = ("--page", page, "--model", model, "--threads", threads)
        self._stack = ExitStack()

    async def start(self) -> None:
        fd = self._listener.fileno()
        command = [sys.executable, "-m", "tests.browser.trip_server", "--fd", str(fd)]
        program = self._stack.enter_context(
            running([*command, *self._arguments], pass_fds=[fd], cwd=ROOT)
        )
        self._stack.callback(program.end)

    async def end(self) -> None:
        """End the process and wait for it."""
        await asyncio.to_thread(self._stack.close)

    async def restart(self) -> None:
        await self.end()
        await self.start()


@asynccontextmanager
async def running_server(page: Path, model: str, threads: Path) -> AsyncGenerator[TripServer, None]:
    """Run a server for the length of a block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = TripServer(listener, page, model, threads)
        await server.start()
        try:
            yield server
        finally:
            await server.end()


EXAMPLE = Path(__file__).parents[2] / "examples" / "react-v2" / "server.py"


def page_and_runtime(page: Path, model: str, threads: Path) -> ASGIApp:
    example = load_example()
    adapter = OpenAIAdapter(model="gpt-4o", base_url=f"{model}/v1", api_key="sk-wrong")
    runtime = CopilotRuntime(
        adapter=adapter,
        agents={example.AGENT: example.TripAgent(adapter)},
        threads=build_store(f"sqlite:{threads}"),
    )
    return one_origin(page, runtime)


def load_example() -> Any:
    """Import the example, whose folder is no package."""
    spec = spec_from_file_location("react_v2_server", EXAMPLE)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="a socket that listens already")
    parser.add_argument("--page", type=Path, required=True, help="the folder of the built page")
    parser.add_argument("--model", required=True, help="the address of the model")
    parser.add_argument("--threads", type=Path, required=True, help="the file of the threads")
    options = parser.parse_args()
    app = page_and_runtime(options.page, options.model, options.threads)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    server.run(sockets=[socket.socket(fileno=options.fd)])


if __name__ == "__main__":
    main()
