"""A Redis of our own for the tests, on a socket in a temporary folder, without a port."""

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes import Program, running


class RedisServer:
    """A Redis that keeps nothing, and can be killed and started again."""

    def __init__(self, program: str, folder: Path) -> None:
        self.url = f"unix://{folder}/redis.sock"
        self._command = [
            *(program, "--port", "0", "--unixsocket", f"{folder}/redis.sock"),
            *("--save", "", "--appendonly", "no", "--dir", str(folder)),
        ]

    @contextmanager
    def running(self) -> Generator[Program, None, None]:
        with running(self._command) as program:
            program.until("Ready to accept connections|ready to accept connections")
            yield program


@contextmanager
def redis_server() -> Generator[RedisServer, None, None]:
    """Return a Redis that is not started; skip without the program, but not in CI."""
    program = shutil.which("redis-server")
    if program is None:
        reason = "No Redis on this machine: install Debian's package 'redis-server'."
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with tempfile.TemporaryDirectory() as name:
        yield RedisServer(program, Path(name))
