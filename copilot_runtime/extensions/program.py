"""The settings of a command of an extension, typed with the sections of all extensions."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from copilot_runtime.cli import program as core

if TYPE_CHECKING:
    from copilot_runtime.app.app import CopilotRuntime
    from copilot_runtime.config.problems import SettingOrigins
    from copilot_runtime.extensions.settings import Settings


class CommandSettings(NamedTuple):
    """The settings of a command, their origins, and the runtime of a program."""

    settings: "Settings"
    origins: "SettingOrigins"
    runtime: "CopilotRuntime | None" = None


def load_command_settings(
    program: str | None, config: Path | None, *, has_notice: bool = True
) -> "Settings":
    """Return the settings as `cli.program.load_command_settings` does."""
    return read_command_settings(program, config, has_notice=has_notice).settings


def read_command_settings(
    program: str | None, config: Path | None, *, has_notice: bool = True
) -> CommandSettings:
    """Return the settings, where each one came from, and the runtime of a program."""
    from copilot_runtime.extensions.settings import narrow_settings

    settings, origins, runtime = core.read_command_settings(program, config, has_notice=has_notice)
    return CommandSettings(narrow_settings(settings), origins, runtime)
