"""One mock for all tests here: `@copilotkit/aimock` of npm, with our conversations."""

import json
import re
import subprocess
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from copilot_runtime.interfaces import Adapter
from tests.adapters.aimock.speakers import SPEAKERS
from tests.conformance.v2.node import install

HERE = Path(__file__).parent
PROGRAM = HERE / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
LISTENS = re.compile(r"listening on (http://127\.0\.0\.1:\d+)")


@pytest.fixture(scope="session")
def aimock() -> Generator[str, None, None]:
    """Start the mock and yield its address; what it has no answer to is an error."""
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


@pytest.fixture(params=SPEAKERS)
async def adapter(
    request: pytest.FixtureRequest, aimock: str, anyio_backend: str
) -> AsyncGenerator[Adapter, None]:
    """An adapter that asks the mock, one after the other."""
    adapter = SPEAKERS[request.param](aimock)
    yield adapter
    await adapter.aclose()  # pyright: ignore[reportAttributeAccessIssue]  # ours all have it


def _version() -> str:
    return json.loads((HERE / "package.json").read_text())["dependencies"]["@copilotkit/aimock"]
