"""A Redis of our own for the tests, on a socket in a temporary folder or on a port."""

import os
import shutil
import socket
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes import Program, running


class RedisServer:
    """A Redis that keeps nothing, and can be killed and started again."""

    def __init__(self, program: str, folder: Path, port: int = 0) -> None:
        self.url = f"redis://127.0.0.1:{port}/0" if port else f"unix://{folder}/redis.sock"
        self._command = [
            *(program, "--port", str(port), "--bind", "127.0.0.1"),
            *("--unixsocket", f"{folder}/redis.sock", "--dir", str(folder)),
            *("--save", "", "--appendonly", "no"),
        ]

    @contextmanager
    def running(self) -> Generator[Program, None, None]:
        with running(self._command) as program:
            program.until("Ready to accept connections|ready to accept connections")
            yield program


@contextmanager
def redis_server(*, over_tcp: bool = False) -> Generator[RedisServer, None, None]:
    """Return a Redis that is not started; skip without the program, but not in CI."""
    program = shutil.which("redis-server")
    if program is None:
        reason = "No Redis on this machine: install Debian's package 'redis-server'."
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with tempfile.TemporaryDirectory() as name:
        yield RedisServer(program, Path(name), _find_free_port() if over_tcp else 0)


def _find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]
