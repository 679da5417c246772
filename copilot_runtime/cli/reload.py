"""`copilot-runtime serve --reload`: start the server again when a file of its program changes."""

import shlex
import sys
from collections.abc import Sequence
from math import ceil
from pathlib import Path

import typer

from copilot_runtime.base.errors import MissingPackage

_SETTINGS_FILES = (".yml", ".yaml", ".toml", ".env")
_DEBOUNCE = 300
"""Milliseconds: an editor writes several files at once."""


def serve_again(target: str | None, arguments: Sequence[str], stop_timeout: float) -> None:
    """Serve in a process of its own, and end it and start another one when a file changes.

    Files of Python and of settings count, below the working directory and beside the target. A
    program that does not start waits for the next change. Raises `MissingPackage`.
    """
    try:
        from watchfiles import PythonFilter, run_process
    except ModuleNotFoundError as error:
        raise MissingPackage("--reload", "watchfiles") from error

    folders = {Path.cwd()}
    where = Path((target or "").partition(":")[0])
    if where.is_file():
        folders.add(where.resolve().parent)
    words = [sys.executable, "-m", "copilot_runtime", "serve", *([target] if target else ())]
    typer.echo(f"Serves anew when a file changes in {', '.join(map(str, sorted(folders)))}.")
    run_process(
        *folders,
        target=shlex.join([*words, *arguments]),
        target_type="command",
        watch_filter=PythonFilter(extra_extensions=_SETTINGS_FILES),
        debounce=_DEBOUNCE,
        # as long as the server may take to end its answers
        sigint_timeout=ceil(2 * stop_timeout) + 1,
    )
