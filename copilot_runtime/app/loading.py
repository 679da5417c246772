"""Load the extensions of a runtime: built-in ones, plugins, and those of the program."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from copilot_runtime.api.argument_checks import describe
from copilot_runtime.api.registry import Registry
from copilot_runtime.app.extension import Extension, PrivateState
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.config.plugins import GROUP, load_plugins
from copilot_runtime.config.settings import CoreSettings
from copilot_runtime.extensions import EXTENSIONS


@cache
def _load_classes() -> Mapping[str, Callable[[], Any]]:
    """Return the classes of all installed extensions, in build order."""
    table = Registry(GROUP, EXTENSIONS, noun="extension")
    return {**{name: table[name] for name in EXTENSIONS}, **load_plugins()}


def list_options() -> Sequence[str]:
    """Return the constructor arguments that installed extensions declare."""
    return [name for kind in _load_classes().values() for name in getattr(kind, "options", ())]


def load_extensions(extras: Sequence[Extension] = ()) -> Sequence[Extension]:
    """Return one object per extension, in build order: built-in ones first, then others.

    Each of the others comes after those that it requires. An object of the program replaces the
    one of the same name. Raises `ConfigurationFailed` for an item that is not an extension, and
    for a missing or circular requirement.
    """
    for item in extras:
        if not isinstance(item, Extension):  # pyright: ignore[reportUnnecessaryIsInstance]  # untyped programs
            raise ConfigurationFailed(
                f"extensions has an item that is {describe(item)}, and not an Extension object.",
                hint="Subclass copilot_runtime.app.extension.Extension, and give an object of it.",
            )
    own = {item.name: item for item in extras}
    if len(own) < len(extras):
        raise ConfigurationFailed("Two extensions of this program have the same name.")
    classes = _load_classes()
    found = {name: own.pop(name, None) or _create(name, make) for name, make in classes.items()}
    found |= own
    for extension in found.values():
        _check_extension(extension)
    sorted_ones = {name: found[name] for name in EXTENSIONS}
    for name in found:
        _add(name, found, sorted_ones, ())
    return [*sorted_ones.values()]


@contextmanager
def name_failures(name: str) -> Generator[None]:
    """Raise `ConfigurationFailed` with the extension's name for an unforeseen error of it."""
    try:
        yield
    except CopilotError:
        raise
    except Exception as error:
        raise ConfigurationFailed(
            f"The extension {name!r} cannot be built: {type(error).__name__}: {error}"
        ) from error


def _create(name: str, make: Callable[[], Any]) -> Extension:
    with name_failures(name):
        extension = make()
    if not isinstance(extension, Extension):
        raise ConfigurationFailed(f"The extension {name!r} is {describe(extension)}.")
    return extension


def _add(
    name: str,
    found: Mapping[str, Extension],
    sorted_ones: dict[str, Extension],
    path: Sequence[str],
) -> None:
    """Add an extension to `sorted_ones`, after those that it requires. `path` led to it."""
    if name in sorted_ones:
        return
    if name in path:
        raise ConfigurationFailed(f"Extensions require each other: {', '.join([*path, name])}.")
    extension = found[name]
    for required in extension.requires:
        if required not in found:
            raise ConfigurationFailed(
                f"The extension {extension.name!r} requires {required!r}, which is not there.",
                hint=f"There are {', '.join(found)}.",
            )
        _add(required, found, sorted_ones, (*path, name))
    sorted_ones[name] = extension


def _check_extension(item: Extension) -> None:
    if not item.name:
        raise ConfigurationFailed(
            f"{type(item).__name__} has no name.", hint='Write name = "weather" in the class.'
        )
    if isinstance(item.requires, str):
        raise ConfigurationFailed(
            f"The extension {item.name!r} has a text as requires.",
            hint=f"Write requires = ({item.requires!r},).",
        )


def list_private_state(settings: CoreSettings) -> Sequence[PrivateState]:
    """Return the state that each process has for itself, if several may form one service.

    That is the case with several `workers`, or with threads in PostgreSQL.
    """
    if settings.workers == 1 and not settings.threads.startswith("postgres"):
        return []
    return [state for one in load_extensions() for state in one.list_private_state(settings)]
