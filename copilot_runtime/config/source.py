"""Detect settings that a program sets in code instead of loading them."""

from collections.abc import Collection
from operator import attrgetter

from copilot_runtime.config.problems import SettingOrigins
from copilot_runtime.config.settings import CoreSettings


def is_independent(
    settings: CoreSettings, read: CoreSettings, options: Collection[str] = ()
) -> bool:
    """Return whether settings were made without file and environment, whose settings are `read`.

    `options` are the names of settings that `read` has from the command line. Nothing marks
    settings that were read: those have all that was read, perhaps with some changes.
    """
    names = read.model_fields_set.difference(options)
    if not names:
        return bool(settings.model_fields_set - read.model_fields_set)
    if not names <= settings.model_fields_set:
        return True
    return all(getattr(settings, name) != getattr(read, name) for name in names)


def find_origins(
    program: str, settings: CoreSettings, read: CoreSettings, origins: SettingOrigins
) -> SettingOrigins:
    """Return where each setting of a program came from: `origins` are those of `read`."""
    defaults = type(settings)()
    is_own = is_independent(settings, read)
    overrides, lines = dict[str, str](), dict[str, int]()
    for row in type(settings).describe():
        find = attrgetter(row.name)
        if is_own or find(settings) != find(read):
            if find(settings) != find(defaults):
                overrides[row.name] = program
        elif row.name in origins.overrides:
            overrides[row.name] = origins.overrides[row.name]
        elif row.name in origins.lines:
            lines[row.name] = origins.lines[row.name]
    return SettingOrigins(None if is_own else origins.path, lines, overrides)
