"""The commands that start our own Python servers, as targets want them."""

import os
import sys
from pathlib import Path

_HERE = Path(__file__).parent
_REPOSITORY = _HERE.parents[1]
_BASE = os.environ.get("BENCH_BASE", "")
HAS_BASE = bool(_BASE)
"""Whether BENCH_BASE names the checkout of another commit to measure beside this one."""


def uvicorn(folder: Path, app: str, python: str = sys.executable) -> list[str]:
    """Serve an ASGI app (`module:name` in a folder) the fast way."""
    return [
        *(python, "-m", "uvicorn", "--app-dir", str(folder), app),
        *("--port", "{PORT}", "--no-access-log", "--log-level", "error"),
        *("--loop", "uvloop", "--http", "httptools", "--backlog", "4096"),
    ]


def serve_ours(path: str) -> list[str]:
    """Serve our runtime, with every transport and agent it has, below a path."""
    return _serve_checkout(_REPOSITORY, path)


def serve_base(path: str) -> list[str]:
    """Serve the runtime of the checkout that BENCH_BASE names, with this Python's packages."""
    return _serve_checkout(Path(_BASE).resolve(), path)


def _serve_checkout(folder: Path, path: str) -> list[str]:
    ours = folder / _HERE.relative_to(_REPOSITORY) / "targets" / "ours.py"
    return [
        *("env", "-C", str(folder), f"PYTHONPATH={folder}"),
        *(sys.executable, "-m", "copilot_runtime", "serve"),
        *(f"{ours}:runtime", "--path", path, "--port", "{PORT}"),
    ]
