"""`copilot-runtime serve --reload`: restart the server when a source file changes."""

import os
import shlex
import sys
from collections.abc import Sequence
from math import ceil
from pathlib import Path

import typer

from copilot_runtime.app.loading import load_extensions
from copilot_runtime.base.errors import MissingPackage
from copilot_runtime.config.settings import CoreSettings

_SETTINGS_FILES = (".yml", ".yaml", ".toml", ".env")
_DEBOUNCE = 300
"""Milliseconds for which changes are collected: an editor writes several files at once."""


def serve_again(target: str | None, arguments: Sequence[str], settings: CoreSettings) -> None:
    """Serve in a child process, and restart it when a file changes.

    Watches Python and settings files below the working directory and next to the target. A program
    that fails to start is started again after the next change. As with several workers, traces are
    in a file, so that the next process has them. Raises `MissingPackage`.
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
    for extension in load_extensions():
        os.environ.update(extension.list_worker_variables(settings))
    typer.echo(f"Restarts when a file changes in {', '.join(map(str, sorted(folders)))}.")
    run_process(
        *folders,
        target=shlex.join([*words, *arguments]),
        target_type="command",
        watch_filter=PythonFilter(extra_extensions=_SETTINGS_FILES),
        debounce=_DEBOUNCE,
        # the time limit of the server for its active answers
        sigint_timeout=ceil(2 * settings.stop_timeout) + 1,
    )
