"""Writes and restores backups."""

import asyncio
import os
from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, aclosing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.operations.backup.archive import (
    ArchiveHeader,
    ArchiveReader,
    ArchiveWriter,
    BackupRefused,
)
from copilot_runtime.extensions.operations.backup.new_file import NewFile, explain_error
from copilot_runtime.extensions.operations.backup.record import (
    DamagedRecord,
    PackedObject,
    PackedRecord,
    Record,
    Row,
)
from copilot_runtime.extensions.operations.backup.source import BackupSource, Replacement, Snapshot
from copilot_runtime.extensions.operations.backup.sources import PLACES


class Progress(NamedTuple):
    """Progress of an operation: records while a backup is written, or else bytes of its file."""

    work: str
    part: str
    done: int
    total: int


Show = Callable[[Progress], None]

_SHOW_EVERY = 256

_LONGEST_LINE = 64 * 1024
"""Bytes; no line of a log is longer."""

_COUNTED = {"thread", "plan", "key", "events", "traces"}
"""Tables whose rows are counted in reports; rows of other tables belong to these."""


@dataclass(frozen=True, slots=True)
class BackupReport:
    """The numbers of written or restored records, and the parts that were left unchanged."""

    counts: Mapping[str, int]
    reasons: Mapping[str, str] = field(default_factory=dict[str, str])
    """Parts whose stores were left unchanged, with the reasons."""
    header: ArchiveHeader | None = None
    is_signed: bool = False


async def write_backup(
    sources: Sequence[BackupSource],
    file: Path | BinaryIO,
    show: Show,
    *,
    force: bool = False,
    key: bytes = b"",
) -> BackupReport:
    """Write a snapshot of all sources into an archive, while servers may continue to run.

    The file appears under its name only when it is complete, and replaces another one only with
    `force`. Raises `StoreFailed`, and `ConfigurationFailed`, also if all sources are empty, which
    suggests a wrong server or folder.
    """
    present = [source for source in sources if source.is_there()]
    if not present:
        raise _build_empty_error()
    async with AsyncExitStack() as stack:
        out = stack.enter_context(NewFile(file, force=force)) if isinstance(file, Path) else file
        # open all snapshots before reading the first, so that they are of nearly the same time
        snapshots = [await stack.enter_async_context(source.snapshot()) for source in present]
        with _explain_write(file):
            names = tuple(source.name for source in present)
            places = {source.name: source.identify() for source in present}
            writer = ArchiveWriter(out, names, key, places=places)
        counts: dict[str, int] = {}
        for source, snapshot in zip(present, snapshots, strict=True):
            async with aclosing(snapshot.records):
                add = partial(writer.add, source.name)
                counts[source.name] = await _write_part(source.name, snapshot, add, file, show)
        if not any(counts.values()):
            raise _build_empty_error()
        with _explain_write(file):
            writer.finish()
    return BackupReport(counts)


def _build_empty_error() -> ConfigurationFailed:
    return ConfigurationFailed(
        "There is nothing to back up: the stores of the settings are empty, or not there yet.",
        hint="Give --config, or run it where the server runs: `copilot-runtime settings`.",
    )


def _is_counted(record: Record | PackedRecord) -> bool:
    return not isinstance(record, Row) or record.table in _COUNTED


async def _write_part(
    name: str,
    snapshot: Snapshot,
    add: Callable[[Record], None],
    file: Path | BinaryIO,
    show: Show,
) -> int:
    done = count = 0
    async for record in snapshot.records:
        with _explain_write(file):
            add(record)
        done += 1
        count += _is_counted(record)
        if done % _SHOW_EVERY == 0:
            show(Progress("Backing up", name, done, max(snapshot.total, done)))
            await asyncio.sleep(0)  # yield, so that Ctrl-C takes effect
    show(Progress("Backing up", name, done, done))
    return count


async def restore_backup(
    sources: Sequence[BackupSource],
    path: Path,
    show: Show,
    *,
    force: bool = False,
    key: bytes = b"",
    without: Sequence[str] = (),
) -> BackupReport:
    """Restore an archive into empty stores or, with `force`, into any.

    Two kinds of stores are left unchanged: a log that contains all lines of the archive's log, and,
    without `force`, a store in its original location while other parts move to new ones. Each part
    with records needs a store, unless it is in `without`.

    The whole archive is verified before any change, and read again to restore it; all stores commit
    at the end. Raises `BackupRefused`, `StoreFailed` and `ConfigurationFailed`.
    """
    with _open(path) as file:
        by_name = {source.name: source for source in sources}
        logs = {source.name for source in sources if source.is_log}
        contents = await _verify(file, show, key, logs)
        reader = ArchiveReader(file, key)
        names = [name for name in reader.header.parts if name not in without]
        _check_places([name for name in names if contents.counts[name]], by_name)
        found = [by_name[name] for name in names if name in by_name]
        reasons = _find_longer_logs(found, contents.tails)
        is_same = {
            source.name: source.identify() == reader.header.places.get(source.name)
            for source in found
        }
        is_move = any(contents.counts[name] and not same for name, same in is_same.items())
        async with AsyncExitStack() as stack:
            targets: dict[str, Replacement] = {}
            for source in found:
                if source.name in reasons:
                    continue
                target = await stack.enter_async_context(source.replace())
                if await target.is_empty():
                    targets[source.name] = target
                elif is_move and is_same[source.name] and not force:
                    reasons[source.name] = "the backup was made from it"
                else:
                    await _clear(target, source, force=force)
                    targets[source.name] = target
            counts = await _put_back(reader, targets, file, show)
        return BackupReport(counts, reasons, reader.header, reader.is_signed)


@dataclass(slots=True)
class _Contents:
    """The number of records of each part, and the last lines of logs."""

    counts: Counter[str] = field(default_factory=Counter[str])
    tails: dict[str, bytes] = field(default_factory=dict[str, bytes])


async def _verify(file: BinaryIO, show: Show, key: bytes, logs: Collection[str]) -> _Contents:
    size, found = _measure(file), _Contents()
    for number, (part, record) in enumerate(ArchiveReader(file, key).read(), 1):
        found.counts[part] += _is_counted(record)
        if part in logs and isinstance(record, PackedObject):
            found.tails[part] = _read_tail(record.pieces) or found.tails.get(part, b"")
        if number % _SHOW_EVERY == 0:
            show(Progress("Checking", part, file.tell(), size))
            await asyncio.sleep(0)
    return found


def _read_tail(pieces: Iterable[bytes]) -> bytes:
    """Return the last line of a log, whose lines have at most `_LONGEST_LINE` bytes."""
    end = b""
    for piece in pieces:
        end = (end + piece)[-_LONGEST_LINE:]
    lines = end.splitlines(keepends=True)
    return lines[-1] if lines else b""


def _check_places(names: Sequence[str], sources: Mapping[str, BackupSource]) -> None:
    """Raise `ConfigurationFailed` for parts without a store."""
    if not (lost := [name for name in names if name not in sources]):
        return
    if unknown := [name for name in lost if name not in PLACES]:
        raise BackupRefused(
            f"The backup has {unknown[0][:50]}, which this version does not know.",
            hint="Restore it with the version that wrote it.",
        )
    raise ConfigurationFailed(
        f"The backup has {', '.join(lost)}, for which the settings name no place: nothing was "
        "restored.",
        hint=f"Set {', '.join(PLACES[name] for name in lost)}, or leave out what shall be lost: "
        f"{' '.join(f'--without {name}' for name in lost)}.",
    )


def _find_longer_logs(
    sources: Sequence[BackupSource], tails: Mapping[str, bytes]
) -> dict[str, str]:
    """Return the logs that contain all lines of the archive, with the reasons to keep them."""
    reasons: dict[str, str] = {}
    for source in sources:
        if source.name in tails and (rest := source.find_rest(tails[source.name])) is not None:
            more = f", and {rest} more" if rest else ""
            reasons[source.name] = f"it has all lines of the backup{more}"
    return reasons


async def _clear(target: Replacement, source: BackupSource, *, force: bool) -> None:
    if not force:
        raise ConfigurationFailed(
            f"{source.presence or f'There are {source.name}'} in {source.address} already.",
            hint="Give --force to replace everything that is there, name an empty store, or leave "
            f"it as it is by --without {source.name}.",
        )
    await target.clear()


async def _put_back(
    reader: ArchiveReader, targets: Mapping[str, Replacement], file: BinaryIO, show: Show
) -> Mapping[str, int]:
    size, counts = _measure(file), dict.fromkeys(targets, 0)
    for number, (part, record) in enumerate(reader.read(), 1):
        if part in targets:
            try:
                await targets[part].add(record)
            except DamagedRecord as error:
                raise BackupRefused(
                    f"The backup is refused because of its {part}: {error}.",
                    hint="Nothing was restored. The file was modified, or written by a later "
                    f"version than this; it says that it is of {reader.header.version}.",
                ) from error
            counts[part] += _is_counted(record)
        if number % _SHOW_EVERY == 0:
            show(Progress("Restoring", part, file.tell(), size))
            await asyncio.sleep(0)
    return counts


@contextmanager
def _explain_write(file: Path | BinaryIO) -> Generator[None, None, None]:
    """Convert an error of the archive file into ours, so that it is not attributed to a store."""
    try:
        yield
    except OSError as error:
        raise explain_error(file if isinstance(file, Path) else Path("-"), error) from error


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise explain_error(path, error) from error


def _measure(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size
