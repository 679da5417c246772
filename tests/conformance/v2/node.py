"""Install what a folder's lock file names, and start the server module."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests import npm
from tests.conformance.v1.node import ROOT, need_node, started

HERE = Path(__file__).parent
OLD = HERE / "old-clients"


def install(folder: Path = HERE) -> None:
    """Install the npm packages of a folder, or skip the test without Node."""
    need_node()
    npm.install(folder)


@contextmanager
def served(agent: str, llm: str, v1_llm: str, remote: str) -> Generator[str, None, None]:
    """Run our server module against the given upstreams."""
    module = "tests.conformance.v2.server"
    upstreams = ["--agent", agent, "--llm", llm, "--v1-llm", v1_llm, "--remote", remote]
    command = [sys.executable, "-m", module, "--port", "0", *upstreams]
    with started(*command, cwd=ROOT) as address:
        yield address
