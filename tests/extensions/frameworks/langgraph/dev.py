"""`langgraph dev`, the real server for graphs, offline."""

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.processes import Program, running

_OFFLINE = {
    "LANGSMITH_TRACING": "false",
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",
    "LANGGRAPH_NO_VERSION_CHECK": "true",
    # whatever else wants to leave this machine finds no way
    "HTTP_PROXY": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "NO_PROXY": "127.0.0.1,localhost",
}


@contextmanager
def graphs_of(config: Path, folder: Path, *, jobs: int = 8) -> Generator[str]:
    """Serve the graphs of a `langgraph.json`; yield the address.

    What the server remembers is left in `folder`. `jobs` is how many runs go on at once.
    """
    wanted = json.loads(config.read_text())
    wanted["graphs"] = {
        name: str(config.parent / place) for name, place in wanted["graphs"].items()
    }
    wanted["dependencies"] = [str(config.parent / place) for place in wanted["dependencies"]]
    (folder / "langgraph.json").write_text(json.dumps(wanted))
    program = [sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload"]
    program += ["--n-jobs-per-worker", str(jobs), "--config", "langgraph.json", "--port"]
    environment = {**os.environ, **_OFFLINE}
    with (
        reserve_port() as port,
        running([*program, str(port)], cwd=folder, env=environment) as server,
    ):
        url = f"http://127.0.0.1:{port}"
        _wait(server, url)
        yield url
        server.end()


@contextmanager
def reserve_port() -> Generator[int]:
    """Yield a port that nobody else gets who asks for any: it is bound, and not listened on.

    A server that names it may listen there: both sockets have SO_REUSEADDR.
    """
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


def _wait(server: Program, url: str) -> None:
    """Return once the server answers: no line of its log means that it does."""
    while server.process.poll() is None:
        with suppress(OSError), urllib.request.urlopen(f"{url}/ok"):
            return
        with suppress(subprocess.TimeoutExpired):
            server.process.wait(0.1)
    raise AssertionError(f"langgraph dev did not start:\n{server.errors.text()[-4000:]}")
