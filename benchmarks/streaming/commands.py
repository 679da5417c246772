"""The commands that start our own Python servers, as targets want them."""

import sys
from pathlib import Path

_OURS = Path(__file__).parent / "targets" / "ours.py"


def uvicorn(folder: Path, app: str, python: str = sys.executable) -> list[str]:
    """Serve an ASGI app (`module:name` in a folder) the fast way."""
    return [
        *(python, "-m", "uvicorn", "--app-dir", str(folder), app),
        *("--port", "{PORT}", "--no-access-log", "--log-level", "error"),
        *("--loop", "uvloop", "--http", "httptools", "--backlog", "4096"),
    ]


def serve_ours(path: str) -> list[str]:
    """Serve our runtime, with every transport and agent it has, below a path."""
    return [
        *(sys.executable, "-m", "copilot_runtime", "serve"),
        *(f"{_OURS}:runtime", "--path", path, "--port", "{PORT}"),
    ]
