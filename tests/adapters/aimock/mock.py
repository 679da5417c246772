"""The mock of npm, `@copilotkit/aimock`, as a process of its own."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.v2.node import install
from tests.processes import running

HERE = Path(__file__).parent
PROGRAM = HERE / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"


@contextmanager
def mocking() -> Generator[str, None, None]:
    """Start the mock with our conversations and yield its address; it refuses all others."""
    install(HERE)
    conversations = HERE / "conversations.json"
    command = ["node", PROGRAM, "--port", "0", "--fixtures", conversations, "--strict"]
    with running([*command, "--chunk-size", "7"]) as program:
        yield program.until(r"listening on (http://127\.0\.0\.1:\d+)")[1]
