"""`langgraph dev`, the real server for graphs, offline."""

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest

_PATIENCE = 90
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
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = [sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload"]
    options = ["--port", str(port), "--n-jobs-per-worker", str(jobs), "--config", "langgraph.json"]
    log = folder / "log"
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [*program, *options], cwd=folder, env={**os.environ, **_OFFLINE}, stdout=out, stderr=out
        ) as process,
    ):
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(process, url, log)
            yield url
        finally:
            process.terminate()


def _wait(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    """Return once the server answers; it cannot say so by itself."""
    end = monotonic() + _PATIENCE
    while process.poll() is None and monotonic() < end:
        try:
            with urllib.request.urlopen(f"{url}/ok", timeout=1):
                return
        except (urllib.error.URLError, OSError):
            try:  # it may have ended, too
                process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
    pytest.fail(f"langgraph dev did not start:\n{log.read_text()[-4000:]}")
