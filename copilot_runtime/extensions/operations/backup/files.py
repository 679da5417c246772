"""Backup of files and objects: the audit log, traces as JSON Lines, and knowledge."""

import os
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from io import BytesIO
from pathlib import Path

from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, StoreFailed
from copilot_runtime.extensions.access.audit.entry import parse_line
from copilot_runtime.extensions.access.audit.log import list_files
from copilot_runtime.extensions.operations.backup.record import (
    DamagedRecord,
    PackedObject,
    PackedRecord,
    Record,
    StoredObject,
)
from copilot_runtime.extensions.operations.backup.source import (
    BackupSource,
    Replacement,
    Snapshot,
    compute_identity,
)
from copilot_runtime.storage import ObjectNotFound, Storage
from copilot_runtime.storage.storage import check_key, open_storage


class FileSource(BackupSource):
    """Files in a folder, without a partial last line.

    `find` returns them, oldest first. With a `stem` and a `suffix`, which may differ where an
    archive is restored, restored files keep only the part of their names after the stem.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        pattern: str,
        find: Callable[[], Sequence[Path]],
        *,
        stem: str = "",
        suffix: str | None = None,
    ) -> None:
        self.name = name
        self.address = str(folder)
        self._folder = folder
        self._pattern = re.compile(pattern)
        self._find = find
        self._stem = stem
        self._suffix = suffix

    def identify(self) -> str:
        return compute_identity(f"files:{self._stem}", self._folder)

    def is_there(self) -> bool:
        return self._folder.is_dir() and bool(self._find())

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[Snapshot, None]:
        files = self._find()
        yield Snapshot(len(files), _read_files(files, self._stem))

    @asynccontextmanager
    async def replace(self) -> AsyncGenerator[Replacement, None]:
        replacement = _FileReplacement(self._folder, self._find, self._rename)
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

    def _rename(self, name: str) -> str:
        """Return the local name of an archived file. Raises `DamagedRecord`."""
        if not (match := self._pattern.fullmatch(name)):
            raise DamagedRecord("a file has a name that none of its kind has")
        return name if self._suffix is None else f"{self._stem}{match[1]}{self._suffix}"


async def _read_files(files: Sequence[Path], stem: str) -> AsyncGenerator[Record, None]:
    for path in files:
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # the oldest go
            continue
        yield StoredObject(path.name.removeprefix(stem), data[: data.rfind(b"\n") + 1])


class _FileReplacement(Replacement):
    """Writes new files beside the existing ones, and renames them at the end."""

    def __init__(
        self,
        folder: Path,
        find: Callable[[], Sequence[Path]],
        rename: Callable[[str], str],
    ) -> None:
        self._folder = folder
        self._find = find
        self._rename = rename
        self._parts: dict[Path, Path] = {}
        self._old: Sequence[Path] = ()

    async def is_empty(self) -> bool:
        return not (self._folder.is_dir() and self._find())

    async def clear(self) -> None:
        self._old = self._find() if self._folder.is_dir() else ()

    async def add(self, record: PackedRecord) -> None:
        if not isinstance(record, PackedObject):
            raise DamagedRecord("a file is none")
        target = self._folder / self._rename(record.name)
        if target in self._parts:
            raise DamagedRecord("a file is there twice")
        self._folder.mkdir(parents=True, exist_ok=True)
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
        """Delete the new files."""
        for part in self._parts.values():
            part.unlink(missing_ok=True)


class AuditSource(FileSource):
    """The files of an audit log."""

    presence = "There is an audit log"
    is_log = True

    def __init__(self, path: Path) -> None:
        super().__init__(
            "audit",
            path.parent,
            r"((?:-\d{12})?)(?:\.[^./\\\0]*)?",
            lambda: list_files(path),
            stem=path.stem,
            suffix=path.suffix,
        )
        self.address = str(path)

    def find_rest(self, tail: bytes) -> int | None:
        if not self.is_there():
            return None
        last, rest = b"", None
        for line in self._read_lines():
            last = line
            if line == tail:
                rest = 0
            elif rest is not None:
                rest += 1
        if rest is None and _read_number(last) > _read_number(tail):
            raise ConfigurationFailed(
                f"The audit log in {self.address} is another one than that of the backup, and is "
                f"longer: {_read_number(last)} lines, not {_read_number(tail)}. Not even --force "
                "replaces it.",
                hint="Leave it as it is by --without audit, or move its files away first.",
            )
        return rest

    def _read_lines(self) -> Iterator[bytes]:
        for path in self._find():
            with path.open("rb") as file:
                yield from file


def _read_number(line: bytes) -> int:
    """Return the number of an audit line, or 0 if it is malformed."""
    with suppress(ValueError):
        number = parse_line(line).get("number")
        return number if isinstance(number, int) else 0
    return 0


def build_day_source(folder: Path) -> FileSource:
    """Return traces as JSON Lines, a file for each day."""
    return FileSource(
        "traces",
        folder,
        r"\d{4}-\d\d-\d\d\.jsonl",
        lambda: sorted(folder.glob("[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9].jsonl")),
    )


class ObjectSource(BackupSource):
    """All objects of a storage: resources, memories, files and indexes.

    Each object is consistent in itself; indexes that are ahead of or behind the resources are
    repaired after a restore, as after a crash.
    """

    name = "knowledge"
    presence = "There is knowledge"

    def __init__(self, address: str) -> None:
        self.address = address.partition("?")[0]
        self._storage_address = address

    def identify(self) -> str:
        kind, _, path = self.address.partition(":")
        if kind == "local":
            return compute_identity(kind, Path(path))
        return compute_identity(self._storage_address)

    def is_there(self) -> bool:
        return True

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[Snapshot, None]:
        async with aclosing(open_storage(self._storage_address)) as storage:
            keys = await storage.list()
            yield Snapshot(len(keys), _read_objects(storage, keys))

    @asynccontextmanager
    async def replace(self) -> AsyncGenerator[Replacement, None]:
        async with aclosing(open_storage(self._storage_address)) as storage:
            replacement = _ObjectReplacement(storage)
            try:
                yield replacement
                await replacement.commit()
            except BaseException:
                await replacement.undo()
                raise


async def _read_objects(storage: Storage, keys: Sequence[str]) -> AsyncGenerator[Record, None]:
    # logs first: what they name is written before they name it
    for key in sorted(keys, key=lambda key: not key.endswith(".jsonl")):
        try:
            yield StoredObject(key, await storage.get(key))
        except ObjectNotFound:  # it was removed meanwhile
            continue


class _ObjectReplacement(Replacement):
    """Writes directly, as storages have no transactions; `undo` can restore an empty storage."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._old: set[str] = set()
        self._keys: set[str] = set()

    async def is_empty(self) -> bool:
        return not await self._storage.list()

    async def clear(self) -> None:
        self._old = {*await self._storage.list()}

    async def add(self, record: PackedRecord) -> None:
        if not isinstance(record, PackedObject):
            raise DamagedRecord("a record of objects is none")
        try:
            check_key(record.name)
        except CopilotError as error:
            raise DamagedRecord(error.message) from error
        self._keys.add(record.name)
        data = BytesIO()
        data.writelines(record.pieces)
        await self._storage.put(record.name, data.getvalue())

    async def commit(self) -> None:
        await self._storage.delete_many(sorted(self._old - self._keys))

    async def undo(self) -> None:
        """Delete new objects; replaced ones are not restored."""
        if new := self._keys - self._old:
            await self._storage.delete_many(sorted(new))
