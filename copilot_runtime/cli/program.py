"""`--program main:runtime`: use the settings that a program defines in code."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from copilot_runtime.app.app import CopilotRuntime
    from copilot_runtime.config.problems import SettingOrigins
    from copilot_runtime.config.settings import CoreSettings

ProgramOption = Annotated[
    str | None,
    typer.Option(
        "--program",
        metavar="MODULE:NAME",
        help="Use the settings of this CopilotRuntime, named as for serve.",
    ),
]

_NO_FILE = (
    "There is no copilot.yml here: the settings are the defaults and the environment. "
    "--program MODULE:NAME uses the Settings(...) of a program."
)


class CommandSettings(NamedTuple):
    """The settings of a command, their origins, and the runtime of a program."""

    settings: "CoreSettings"
    origins: "SettingOrigins"
    runtime: "CopilotRuntime | None" = None


def load_command_settings(
    program: str | None, config: Path | None, *, has_notice: bool = True
) -> "CoreSettings":
    """Return the settings of a program, or of file and environment.

    Without either, a notice on stderr says so, unless another option already names the target of
    the command (no `has_notice`). Raises `ConfigurationFailed`.
    """
    return read_command_settings(program, config, has_notice=has_notice).settings


def read_command_settings(
    program: str | None, config: Path | None, *, has_notice: bool = True
) -> CommandSettings:
    """Return the settings like `load_command_settings`, with their origins and runtime."""
    from copilot_runtime.config.loader import read_settings

    if config is not None and program is not None:
        os.environ["COPILOT_CONFIG"] = str(config)  # the program reads the variable, too
    found = CommandSettings(*read_settings(config))
    if program is not None:
        found = _import_settings(program, found)
    if has_notice and program is None and found.origins.path is None:
        typer.echo(_NO_FILE, err=True)
    return found


def name_config_file(path: Path | None) -> None:
    """Name the settings file in the environment: a module that is served reads the same one."""
    if path is not None:
        os.environ["COPILOT_CONFIG"] = str(path)


def _import_settings(program: str, read: CommandSettings) -> CommandSettings:
    """Return the settings of a program. `read` has those of file and environment."""
    from copilot_runtime.app.threads import name_stores
    from copilot_runtime.base.errors import ConfigurationFailed
    from copilot_runtime.cli.serve import find_runtime
    from copilot_runtime.cli.target import find_target
    from copilot_runtime.config.loader import find_origins

    if (runtime := find_runtime(find_target(program))) is None:
        raise ConfigurationFailed(
            f"{program} is neither a CopilotRuntime nor an application with one.",
            hint="Name the runtime, as in --program main:runtime.",
        )
    origins = find_origins(program, runtime.settings, read.settings, read.origins)
    return CommandSettings(name_stores(runtime), origins, runtime)
