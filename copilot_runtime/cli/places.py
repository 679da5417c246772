"""The banner lines of `serve` for its settings file and its thread store."""

import logging
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from copilot_runtime.app.threads import name_stores
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.cli.target import find_folder
from copilot_runtime.config.loader import DEFAULT_FILE, is_independent, read_settings
from copilot_runtime.config.settings import CoreSettings
from copilot_runtime.database.postgres.pool import Pool
from copilot_runtime.threads import STORES
from copilot_runtime.threads.url import build_store

if TYPE_CHECKING:
    from copilot_runtime.app.app import CopilotRuntime

logger = logging.getLogger(__name__)


def list_places(
    target: str | None,
    runtime: "CopilotRuntime | None",
    settings: CoreSettings,
    options: Collection[str],
    file: Path | None,
) -> list[str]:
    """Return the banner lines for the settings and the threads of a runtime.

    `settings` are those of the file and the environment, with `options` of the command line.
    """
    if runtime is None:
        return []
    source = describe_file(file)
    if target is not None and is_independent(runtime.settings, settings, options):
        source = f"settings    those of {target}"
        if file is not None:
            source += f", and not '{file}'"
    return [source, f"threads     {describe_threads(name_stores(runtime))}"]


def describe_file(file: Path | None) -> str:
    """Return the banner line with the settings file."""
    place = str(file.absolute()) if file else f"no {DEFAULT_FILE} here: defaults, environment"
    return f"settings    {place}"


def describe_threads(settings: CoreSettings) -> str:
    """Return the location of threads for display: without a password, a file as absolute path."""
    kind = settings.threads.partition(":")[0]
    if kind not in STORES:
        return kind
    if kind == "memory":
        return "in memory: they end with the server"
    store = build_store(settings.threads)
    if store.shared_file is not None:
        return f"sqlite:{store.shared_file.absolute()}"
    return Pool(store.shared_url, 1).address


def warn_of_other_file(target: str, runtime: "CopilotRuntime | None", file: Path | None) -> None:
    """Log a warning if the settings file beside the program is not the one that is used."""
    if runtime is None or (folder := find_folder(target)) is None:
        return
    other = folder / DEFAULT_FILE
    if not other.is_file() or (file is not None and other.samefile(file)):
        return
    try:
        if not is_independent(runtime.settings, read_settings(other)[0]):
            return  # the program reads it itself
    except CopilotError:
        pass  # it is invalid, so it is not in use
    logger.warning(
        "'%s' lies beside the program and is not read: the working directory counts. "
        "Start the server there, or name the file with --config.",
        other,
    )
