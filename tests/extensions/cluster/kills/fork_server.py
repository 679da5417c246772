"""Starts servers by `fork`: what takes two seconds to import is imported once.

It reads a line of JSON for each server: the path of its socket, its settings, the files for its
effects and its log. It prints the id of the process. All of them end with its standard input.
"""

import asyncio
import gc
import json
import os
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import uvicorn

from tests.extensions.cluster.kills.server import PATH, Effects, Order, build_app
from tests.wire_agui.http import Browser, user
from tests.wire_agui.server import serving


class ForkServer:
    """A process that forks servers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._lock = asyncio.Lock()

    async def fork(self, path: Path, settings: Mapping[str, Any], effects: Path, log: Path) -> int:
        """Start a server that listens at a path already, and return the id of its process."""
        line = json.dumps([str(path), settings, str(effects), str(log)])
        async with self._lock:
            assert self._process.stdin and self._process.stdout
            self._process.stdin.write(f"{line}\n".encode())
            answer = await self._process.stdout.readline()
        return int(answer)


@asynccontextmanager
async def forking() -> AsyncGenerator[ForkServer, None]:
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", __name__)
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, start_new_session=True
    )
    try:
        assert process.stdin and process.stdout
        assert await process.stdout.readline() == b"ready\n", "it says why above"
        yield ForkServer(process)
        process.stdin.close()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def main() -> None:
    for name in ("asyncpg", "redis.asyncio", "redis.asyncio.connection"):
        import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_warm_up(Path(folder)))
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system forgets the dead by itself
    _write_line("ready")
    for line in sys.stdin:
        path, settings, effects, log = json.loads(line)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(200)
            pid = os.fork()
            if pid == 0:
                _serve(listener, settings, Effects(Path(effects)), log)
        _write_line(str(pid))
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _write_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _serve(
    listener: socket.socket, settings: Mapping[str, Any], effects: Effects, log: str
) -> None:
    """Serve until the end of this process."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        config = uvicorn.Config(build_app(settings, effects), log_level="error")
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(uvicorn.Server(config).serve(sockets=[listener]))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


async def _warm_up(folder: Path) -> None:
    """Load what is imported when it is first needed."""
    settings = {"threads": f"sqlite:{folder / 'threads.db'}"}
    async with serving(build_app(settings, Effects(folder / "effects"))) as port:
        browser = Browser(port, PATH)
        order = Order(run="r", words=1, payments=1)
        await browser.run(messages=[user(order.encode())])
        await browser.connect()
        await browser.stop()
        await browser.ask("DELETE", "/threads/t", {"agentId": "default"})


if __name__ == "__main__":
    main()
