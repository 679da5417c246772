"""Start the Node programs and the server module the driver needs, each on a free port."""

import os
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import npm
from tests.processes import running

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def need_node() -> None:
    """Skip the test without Node, or fail where tests must not be skipped."""
    if shutil.which("node") and shutil.which("npm"):
        return
    reason = "These tests drive the runtime with the npm client: install Node 20 or newer."
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def install() -> None:
    """Install the npm client."""
    npm.install(HERE)


@contextmanager
def started(*command: str | Path, cwd: Path = HERE) -> Generator[str, None, None]:
    """Run a program that prints its address, and end it afterwards."""
    env = {**os.environ, "PORT": "0", "PYTHONPATH": str(ROOT)}
    with running(command, cwd=cwd, env=env) as program:
        yield program.until(r"http://localhost:\d+\s*$")[0].strip()


@contextmanager
def served(llm: str, remote: str) -> Generator[str, None, None]:
    """Run our server module against the given upstreams."""
    module = "tests.conformance.v1.server"
    options = ["--port", "0", "--llm", llm, "--remote", remote]
    with started(sys.executable, "-m", module, *options, cwd=ROOT) as address:
        yield address
