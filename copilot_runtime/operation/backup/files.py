"""Files of a folder that servers only add lines to: the audit log, and traces as JSON Lines."""

import os
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from copilot_runtime.errors import StoreFailed
from copilot_runtime.operation.backup.record import (
    DamagedRecord,
    PackedObject,
    PackedRecord,
    Record,
    StoredObject,
)
from copilot_runtime.operation.backup.source import BackupSource, Replacement, Snapshot
from copilot_runtime.security.audit.log import list_files


class FileSource(BackupSource):
    """Files whose names fit a pattern, in a folder. What is being written is left out: half a line.

    `list_files` returns them, the oldest first. In an archive the file `current` is called by that
    word, for it may have another name elsewhere, and others by what follows its stem.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        pattern: str,
        find: Callable[[], Sequence[Path]],
        *,
        stem: str = "",
    ) -> None:
        self.name = name
        self.address = str(folder)
        self._folder = folder
        self._pattern = re.compile(pattern)
        self._find = find
        self._stem = stem

    def is_there(self) -> bool:
        return self._folder.is_dir() and bool(self._find())

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[Snapshot, None]:
        yield _FileSnapshot(self._find(), self._stem)

    @asynccontextmanager
    async def replace(self) -> AsyncGenerator[Replacement, None]:
        replacement = _FileReplacement(self._folder, self._pattern, self._find, self._stem)
        try:
            yield replacement
            replacement.commit()
        except OSError as error:
            raise StoreFailed(
                f"The files in '{self._folder}' cannot be written: {error.strerror or error}.",
                hint="See whether the disk has room, and whether this user may write there.",
            ) from error
        finally:
            replacement.discard()


class _FileSnapshot(Snapshot):
    def __init__(self, files: Sequence[Path], stem: str) -> None:
        self._files = files
        self._stem = stem

    async def count(self) -> int:
        return len(self._files)

    async def read(self) -> AsyncGenerator[Record, None]:
        for path in self._files:
            try:
                data = path.read_bytes()
            except FileNotFoundError:  # the oldest go
                continue
            whole = data[: data.rfind(b"\n") + 1]
            yield StoredObject(path.name.removeprefix(self._stem), whole)


class _FileReplacement(Replacement):
    """Writes beside the files that there are, and renames in the end."""

    def __init__(
        self,
        folder: Path,
        pattern: re.Pattern[str],
        find: Callable[[], Sequence[Path]],
        stem: str,
    ) -> None:
        self._folder = folder
        self._pattern = pattern
        self._find = find
        self._stem = stem
        self._parts: dict[Path, Path] = {}
        self._old: Sequence[Path] = ()

    async def is_empty(self) -> bool:
        return not (self._folder.is_dir() and self._find())

    async def clear(self) -> None:
        self._old = self._find() if self._folder.is_dir() else ()

    async def add(self, record: PackedRecord) -> None:
        if not isinstance(record, PackedObject) or not self._pattern.fullmatch(record.name):
            raise DamagedRecord("a file has a name that none of its kind has")
        self._folder.mkdir(parents=True, exist_ok=True)
        target = self._folder / f"{self._stem}{record.name}"
        part = target.with_name(f".{target.name}.restored")
        part.unlink(missing_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            self._parts[target] = part
            file.writelines(record.pieces)
            file.flush()
            os.fsync(file.fileno())

    def commit(self) -> None:
        for path in self._old:
            if path not in self._parts:
                path.unlink(missing_ok=True)
        for target, part in self._parts.items():
            part.replace(target)
        self._parts.clear()

    def discard(self) -> None:
        """Remove what was written and does not count."""
        for part in self._parts.values():
            part.unlink(missing_ok=True)


def build_audit_source(path: Path) -> FileSource:
    """Return the files of an audit log."""
    suffix = re.escape(path.suffix)
    return FileSource(
        "audit",
        path.parent,
        rf"(-\d{{12}})?{suffix}",
        lambda: list_files(path),
        stem=path.stem,
    )


def build_day_source(folder: Path) -> FileSource:
    """Return traces as JSON Lines, a file for each day."""
    return FileSource(
        "traces",
        folder,
        r"\d{4}-\d\d-\d\d\.jsonl",
        lambda: sorted(folder.glob("[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9].jsonl")),
    )
