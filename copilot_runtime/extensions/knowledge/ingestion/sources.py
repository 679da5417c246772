"""Discover the files of paths, folders and patterns."""

import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from stat import S_ISREG

from copilot_runtime.base.errors import NotFound
from copilot_runtime.base.links import (
    IS_ALIAS,
    LEADS_NOWHERE,
    LEADS_OUT,
    find_fixed_part,
    find_way_out,
    is_alias,
)
from copilot_runtime.extensions.knowledge.identifiers import name_file, read_name
from copilot_runtime.extensions.knowledge.ingestion.documents import MOST_BYTES
from copilot_runtime.extensions.knowledge.ingestion.sandbox import UnreadableDocument

_TEMPORARY = re.compile(r"~\$|#.*#$|.*(?:~|\.(?:tmp|part|swp|crdownload))$", re.IGNORECASE)
"""Names of files that programs leave while they write others."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file."""

    name: str
    """Its path from the working directory; outside of that, the whole path. It is its identity."""
    address: str
    """Its path below the given folder, which is appended to the base to form its IRI."""
    path: Path

    def read(self) -> bytes:
        """Return its bytes. Raises `UnreadableDocument`."""
        try:
            status = self.path.stat()
            if not S_ISREG(status.st_mode):
                raise UnreadableDocument("It is no file, but a pipe, a socket or a device.")
            if status.st_size > MOST_BYTES:
                raise UnreadableDocument(
                    f"The file is larger than {MOST_BYTES // 1024 // 1024} MB."
                )
            return self.path.read_bytes()
        except OSError as error:
            raise UnreadableDocument(f"The file cannot be read: {error.strerror}.") from error


@dataclass(frozen=True)
class Discovery:
    """The result of a discovery."""

    sources: dict[str, Source] = field(default_factory=dict[str, Source])
    """The files by name, in order of their names."""
    files: set[str] = field(default_factory=set[str])
    """The names of files that were given individually."""
    folders: set[str] = field(default_factory=set[str])
    patterns: set[str] = field(default_factory=set[str])
    unmatched: list[str] = field(default_factory=list[str])
    """The patterns that match no file, as given."""
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    """The reasons for skipping symbolic links in the folder that was named, by name."""
    unreadable: dict[str, str] = field(default_factory=dict[str, str])
    """Errors of unreadable folders, whose files may still exist, by folder."""

    def covers(self, name: str) -> bool:
        """Return whether a file would have been discovered, if it were there."""
        parts = Path(name).parts
        return not any(_is_below(name, folder) for folder in self.unreadable) and (
            name in self.files
            or any(_matches(parts, Path(pattern).parts) for pattern in self.patterns)
            or any(name == it or _is_below(name, it) for it in self.folders)
        )

    def list_attempts(self, names: Iterable[str]) -> list[str]:
        """Return the names of files and folders that failed once, and were tried again now."""
        bases = [name_file(find_fixed_part(Path(pattern))) for pattern in self.patterns]
        return [
            name
            for name in names
            if self.covers(name)
            or (
                any(name == base or _is_below(name, base) for base in bases)
                and not Path(name).is_file()
            )
        ]

    def note_unreadable(self, name: str, error: OSError) -> None:
        """Record that a folder could not be read, unless it was deleted in the meantime."""
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            reason = error.strerror or type(error).__name__
            self.unreadable[name] = f"The folder cannot be read: {reason}."

    def check_missing(self, names: Iterable[str]) -> None:
        """Check the folders of missing files, since a pattern hides read errors."""
        roots = {*self.folders, *(name_file(find_fixed_part(Path(one))) for one in self.patterns)}
        parents = {
            str(parent)
            for name in names
            if name not in self.sources and self.covers(name)
            for parent in Path(name).parents
        }
        for parent in sorted(parents):
            if parent in roots or any(_is_below(parent, root) for root in roots):
                try:
                    with os.scandir(parent) as entries:
                        any(entries)  # the first one may fail, too
                except OSError as error:
                    self.note_unreadable(parent, error)


def discover_sources(
    paths: Iterable[str | Path],
    addresses: Mapping[str, str] | None = None,
    excluded: Path | None = None,
) -> Discovery:
    """Return the files of paths, folders and patterns such as `docs/**/*.html`.

    Hidden files and folders, and temporary files of programs that write, are omitted unless they
    are named, as are files below `excluded`. A symbolic link is followed if it is named, or leads
    to a hidden file in a named folder: others have a name of their own, by which policies know
    them. `addresses` are those of ingested files by name: a file that is
    given alone or by a pattern keeps its address. A missing file raises `NotFound`, unless it was
    ingested: then it counts as deleted. Files below an unreadable folder do not count as deleted,
    nor those below one of the paths that is missing: it may be on a disk that is not mounted.
    """
    discovery = Discovery()
    found: dict[str, Source] = {}
    addresses = addresses or {}
    for item in paths:
        path = Path(item)
        name = name_file(path)
        if path.is_dir():
            discovery.folders.add(name)
            walk = _walk(path, name, excluded, discovery)
            found = {source.name: source for source in walk} | found
        elif path.is_file():
            discovery.files.add(name)
            address = addresses.get(name, read_name(path.name))
            found.setdefault(name, Source(name, address, path))
        elif glob.has_magic(str(item)):
            discovery.patterns.add(name)
            for source in _match(path, addresses, discovery):
                found.setdefault(source.name, source)
        elif name in addresses:
            discovery.files.add(name)
        elif any(_is_below(file, name) for file in addresses):
            discovery.folders.add(name)
            discovery.unreadable[name] = "The folder is missing. What was taken in of it is kept."
        else:
            raise NotFound(
                f"There is no file or folder {str(item)!r}.",
                hint="Give a file, a folder, or a pattern such as 'docs/**/*.html' in quotes.",
            )
    discovery.sources.update(sorted(found.items()))
    for name in discovery.skipped.keys() & found.keys():
        del discovery.skipped[name]
    discovery.check_missing(addresses)
    return discovery


def _match(pattern: Path, addresses: Mapping[str, str], discovery: Discovery) -> Iterator[Source]:
    """Yield the files of a pattern; links out of its folder, and second names, are skipped."""
    start = find_fixed_part(pattern)
    files = [Path(text) for text in glob.glob(str(pattern), recursive=True)]  # noqa: PTH207 - also whole paths
    if not any(file.is_file() for file in files):
        discovery.unmatched.append(str(pattern))
    for file in files:
        name = name_file(file)
        if _TEMPORARY.match(file.name):
            continue
        if link := find_way_out(file, start):
            discovery.skipped[name_file(link)] = LEADS_OUT
        elif file.is_file() and is_alias(file, start):
            discovery.skipped[name] = IS_ALIAS
        elif file.is_file():
            address = read_name(file.relative_to(start).as_posix())
            yield Source(name, addresses.get(name, address), file)


def _walk(root: Path, name: str, excluded: Path | None, discovery: Discovery) -> Iterator[Source]:
    """Yield the files below a folder of some name; links out of it are skipped."""
    prefix = "" if name == "." else f"{name}{os.sep}"
    real = root.resolve()
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(root / folder) as entries:
                found = [*entries]
        except OSError as error:
            discovery.note_unreadable(read_name(f"{prefix}{folder}").removesuffix(os.sep), error)
            continue
        for entry in found:
            if entry.name.startswith("."):
                continue
            below = f"{folder}{entry.name}"
            address = read_name(below)
            is_link = entry.is_symlink()
            if is_link and find_way_out(root / below, root):
                discovery.skipped[prefix + address] = LEADS_OUT
            elif (root / below).is_dir() if is_link else entry.is_dir():
                if not is_link and real / below != excluded:
                    folders.append(f"{below}{os.sep}")
            elif is_link and is_alias(root / below, root):
                is_there = (root / below).exists()
                discovery.skipped[prefix + address] = IS_ALIAS if is_there else LEADS_NOWHERE
            elif not _TEMPORARY.match(entry.name):
                yield Source(prefix + address, address.replace(os.sep, "/"), root / below)


def _is_below(name: str, folder: str) -> bool:
    return name.startswith(f"{folder}{os.sep}") or (folder == "." and not Path(name).is_absolute())


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[start:], pattern[1:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])
