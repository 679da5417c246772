"""Look up plugins by name (built-in ones, then installed entry points), and parts by type."""

import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module, metadata
from operator import attrgetter
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from copilot_runtime.base.errors import ConfigurationFailed, MissingPackage, UnknownName
from copilot_runtime.base.jsontext import loads

logger = logging.getLogger(__name__)

PACKAGE = "copilot-runtime"
"""The name this package is installed under."""

_REQUIREMENT = re.compile(r"""(?P<name>[\w.-]+).*?extra\s*==\s*['"](?P<extra>[^'"]+)['"]""")


@dataclass(frozen=True, slots=True)
class RegistryEntry:
    """A registered name, the object it refers to, and the package that registered it."""

    name: str
    target: str
    """The object reference, as `module:attribute`."""
    origin: str = PACKAGE
    """The installed package that registered the name."""


class Registry(Mapping[str, Any]):
    """Imports an object only when its name is looked up.

    Listing names imports nothing, so a broken plugin does no harm until it is used.
    `noun` names one entry in errors; by default, it is the group's last word without its s.
    """

    def __init__(self, group: str, built_in: Mapping[str, str], *, noun: str | None = None) -> None:
        self.group = group
        self.noun = noun or group.rpartition(".")[2].removesuffix("s")
        self._built_in = dict(built_in)

    def __getitem__(self, name: str) -> Any:
        """Import the object of a name. Raises `ConfigurationFailed` or a subclass of it."""
        entry = self._find(name)
        if entry is None:
            raise UnknownName(self.noun, name, self.entries)
        return self._load(entry)

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def get(self, key: str, default: Any = None, /) -> Any:
        """Import the object of a name, or return `default` for an unknown name."""
        entry = self._find(key)
        return default if entry is None else self._load(entry)

    @cached_property
    def entries(self) -> Mapping[str, RegistryEntry]:
        """All entries by name, sorted. A plugin cannot override a built-in name."""
        entries = {name: RegistryEntry(name, target) for name, target in self._built_in.items()}
        for entry in self._plugins:
            entries.setdefault(entry.name, entry)
        for entry in self.clashes(entries):
            logger.warning("%s", explain_clash(self.noun, entry, entries[entry.name]))
        return dict(sorted(entries.items()))

    def clashes(
        self, entries: Mapping[str, RegistryEntry] | None = None
    ) -> Sequence[RegistryEntry]:
        """Return the unused entries of packages: another entry has their name."""
        entries = self.entries if entries is None else entries
        return [entry for entry in self._plugins if entries[entry.name] != entry]

    @cached_property
    def _plugins(self) -> Sequence[RegistryEntry]:
        """The entries of installed packages, sorted by name and package."""
        entries = {
            RegistryEntry(
                point.name,
                point.value.partition("[")[0].strip(),
                (point.dist and point.dist.name) or "an unnamed package",
            )
            for point in _search_packages(tuple(sys.path))(group=self.group)
        }
        return sorted(entries, key=lambda entry: (entry.name, entry.origin, entry.target))

    def _find(self, name: str) -> RegistryEntry | None:
        """Return the entry of a name, or None; built-in names need no search of packages."""
        target = self._built_in.get(name)
        return self.entries.get(name) if target is None else RegistryEntry(name, target)

    def _load(self, entry: RegistryEntry) -> Any:
        what = f"The {self.noun} {entry.name!r}"
        module, _, attribute = entry.target.partition(":")
        try:
            loaded = import_module(module)
            return attrgetter(attribute)(loaded) if attribute else loaded
        except ModuleNotFoundError as error:
            missing = error.name or module
            if entry.origin != PACKAGE:
                raise _build_plugin_error(what, entry, error) from error
            if missing.partition(".")[0] == __name__.partition(".")[0]:
                raise  # a mistake in this package: the traceback says where
            raise MissingPackage(what, missing, _find_extra(missing) or entry.name) from error
        except (Exception, SystemExit) as error:  # a plugin may do anything while it is imported
            if entry.origin == PACKAGE:
                raise
            raise _build_plugin_error(what, entry, error) from error


@lru_cache(maxsize=1)
def _search_packages(_path: tuple[str, ...]) -> Callable[..., metadata.EntryPoints]:
    """Return the selection from all entry points: one search of the path serves all groups."""
    return metadata.entry_points().select


def explain_clash(noun: str, unused: RegistryEntry, used: RegistryEntry) -> str:
    """Return the warning for an entry whose name is already registered."""
    return (
        f"The package {unused.origin!r} names a {noun} {unused.name!r}, and so does "
        f"{used.origin!r}: that of {used.origin!r} is used."
    )


def _build_plugin_error(
    what: str, entry: RegistryEntry, error: BaseException
) -> ConfigurationFailed:
    return ConfigurationFailed(
        f"{what} of the package {entry.origin!r} could not be loaded from {entry.target!r}: "
        f"{type(error).__name__}: {error}",
        hint=f"Update or remove the package {entry.origin!r}, or install its dependencies.",
    )


def install_command(extra: str) -> str:
    """Return the command that installs an extra from this package's origin (PEP 610)."""
    try:
        origin = metadata.distribution(PACKAGE).read_text("direct_url.json")
    except metadata.PackageNotFoundError:  # run from a source tree
        return f"pip install -e '.[{extra}]'"
    if origin is None:  # from an index
        return f"pip install '{PACKAGE}[{extra}]'"
    fields = loads(origin.encode())
    url: str = fields["url"]
    if "dir_info" in fields:
        path = unquote(urlsplit(url).path)
        editable = "-e " if fields["dir_info"].get("editable") else ""
        return f"pip install {editable}'{path}[{extra}]'"
    if vcs := fields.get("vcs_info"):
        url = f"{vcs['vcs']}+{url}@{vcs.get('requested_revision') or vcs['commit_id']}"
    if folder := fields.get("subdirectory"):
        url += f"#subdirectory={folder}"
    return f"pip install '{PACKAGE}[{extra}] @ {url}'"


def explain_missing(error: MissingPackage) -> str:
    """Return the message of an error with the command for where this package was installed from."""
    if not error.extra:
        return error.message
    return error.message.removesuffix(error.command) + install_command(error.extra)


def _find_extra(module: str) -> str | None:
    """Return the extra whose requirements provide a module, by the requirement's name, or None."""
    try:
        requirements = metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:  # run from a source tree
        return None
    extras: dict[str, str] = {}
    for requirement in requirements:
        if found := _REQUIREMENT.match(requirement):
            extras.setdefault(found["name"].replace("_", "-").lower(), found["extra"])
    parts = module.replace("_", "-").lower().split(".")
    names = ("-".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((extras[name] for name in names if name in extras), None)


T = TypeVar("T")


class Parts:
    """The objects that extensions offer to each other, to transports and to the program.

    Each is registered under a type, usually its own class: `parts.find(Kind)` returns the one
    of this runtime, typed, without anything in between that names it.
    """

    def __init__(self) -> None:
        self._parts: dict[type[Any], Any] = {}

    def add(self, kind: type[T], part: T) -> None:
        """Register a part under a type. A later part of the same type takes its place."""
        self._parts[kind] = part

    def find(self, kind: type[T]) -> T | None:
        """Return the part of a type, or `None` if no extension offers one."""
        return self._parts.get(kind)

    def get(self, kind: type[T]) -> T:
        """Return the part of a type. Raises `ConfigurationFailed` if no extension offers one."""
        if (part := self.find(kind)) is None:
            raise ConfigurationFailed(
                f"This runtime has no {kind.__name__}.",
                hint="Enable the extension that offers it, in the settings or in the program.",
            )
        return part
