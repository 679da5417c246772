"""The mock of npm, `@copilotkit/aimock`, as a process of its own."""

import json
import re
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conformance.v2.node import install

HERE = Path(__file__).parent
PROGRAM = HERE / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
LISTENS = re.compile(r"listening on (http://127\.0\.0\.1:\d+)")


@contextmanager
def mocking() -> Generator[str, None, None]:
    """Start the mock with our conversations and yield its address; it refuses all others."""
    install(HERE)
    conversations = HERE / "conversations.json"
    command = ["node", PROGRAM, "--port", "0", "--fixtures", conversations, "--strict"]
    with subprocess.Popen(
        [*command, "--chunk-size", "7"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout
        try:
            for line in process.stdout:
                if found := LISTENS.search(line):
                    yield found[1]
                    return
            pytest.fail(f"aimock {_version()} ended without telling its address")
        finally:
            process.terminate()


def _version() -> str:
    return json.loads((HERE / "package.json").read_text())["dependencies"]["@copilotkit/aimock"]
