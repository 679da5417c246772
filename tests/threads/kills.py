"""A server process on a file of threads, which is killed at some moment."""

import asyncio
import json
import os
import random
import sys
from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.processes import Program, running

KILLS = int(os.environ.get("KILLS", "2"))

Frame = Mapping[str, Any]
"""An event of AG-UI, as a client gets it."""


class Server:
    """One server process on the file of threads."""

    def __init__(self, program: Program, port: int) -> None:
        self.program = program
        self.url = f"http://127.0.0.1:{port}/copilot"
        self.client = aiohttp.ClientSession()

    async def read(self, operation: str, thread: str, run: str, frames: list[Frame]) -> None:
        """Read an answer into `frames`, as far as it comes. Raises `aiohttp.ClientError`."""
        message = {"id": f"u-{run}", "role": "user", "content": "Talk!"}
        asked = [message] if operation == "run" else []
        body = {"threadId": thread, "runId": run, "messages": asked}
        body |= {"tools": [], "context": [], "state": {}, "forwardedProps": {}}
        url = f"{self.url}/agent/default/{operation}"
        async with self.client.post(url, json=body) as response:
            assert response.status == 200
            rest = b""
            async for some in response.content.iter_any():
                *whole, rest = (rest + some).split(b"\n\n")
                frames.extend(
                    json.loads(frame.removeprefix(b"data:"))
                    for frame in whole
                    if frame.startswith(b"data:")
                )

    async def replay(self, thread: str) -> list[Frame]:
        """Return what a client gets that opens a thread."""
        frames: list[Frame] = []
        await self.read("connect", thread, "connect", frames)
        return frames


@asynccontextmanager
async def started(file: Path) -> AsyncGenerator[Server]:
    with running([sys.executable, "-m", "tests.threads.kill_server", file]) as program:
        server = Server(program, int(program.until(r"^(\d+)\n")[1]))
        async with server.client:
            yield server


async def kill_amid(
    server: Server, begun: asyncio.Event, readers: Iterable[Coroutine[Any, Any, None]]
) -> None:
    """Let many readers ask, and kill the server at some moment after the first has begun."""
    async with asyncio.TaskGroup() as tasks:
        for reader in readers:
            tasks.create_task(reader)
        await begun.wait()
        # the moment must be any: this does not wait for something
        await asyncio.sleep(random.uniform(0.0, 0.6))
        server.program.kill()


def by_run(frames: Iterable[Frame]) -> dict[str, list[Frame]]:
    """Cut a replay into its runs."""
    runs: dict[str, list[Frame]] = {}
    run: list[Frame] = []
    for frame in frames:
        if frame["type"] == "RUN_STARTED":
            run = runs[frame["runId"]] = []
        run.append(frame)
    return runs


def asked(frames: Sequence[Frame]) -> list[str]:
    """Return the ids of what a run was asked."""
    return [message["id"] for message in frames[0]["input"]["messages"]] if frames else []
