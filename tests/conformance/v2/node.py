"""Install what a folder's lock file names, once, and start the server module."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.v1.node import ROOT, need_node, started

HERE = Path(__file__).parent
OLD = HERE / "old-clients"


def install(folder: Path = HERE) -> None:
    """Install the npm packages of a folder; a changed lock file installs them anew."""
    need_node()
    lock, done = folder / "package-lock.json", folder / "node_modules" / ".package-lock.json"
    if done.exists() and done.stat().st_mtime >= lock.stat().st_mtime:
        return
    command = ["npm", "ci", "--ignore-scripts"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)


@contextmanager
def served(agent: str, llm: str, v1_llm: str, remote: str) -> Generator[str, None, None]:
    """Run our server module against the given upstreams."""
    module = "tests.conformance.v2.server"
    upstreams = ["--agent", agent, "--llm", llm, "--v1-llm", v1_llm, "--remote", remote]
    command = [sys.executable, "-m", module, "--port", "0", *upstreams]
    with started(*command, cwd=ROOT) as address:
        yield address
