"""The interface of the parts of a backup: snapshot and replacement of a store."""

import hashlib
import platform
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import NamedTuple

from copilot_runtime.extensions.operations.backup.record import PackedRecord, Record


class Snapshot(NamedTuple):
    """A consistent snapshot of a source. At most a few records are in memory at a time."""

    total: int
    """The approximate number of records, for progress."""
    records: AsyncGenerator[Record, None]


class Replacement(ABC):
    """An atomic replacement of all records of a source."""

    @abstractmethod
    async def is_empty(self) -> bool:
        """Return `True` if the source has no records."""

    @abstractmethod
    async def clear(self) -> None:
        """Remove all existing records, if the replacement is committed."""

    @abstractmethod
    async def add(self, record: PackedRecord) -> None:
        """Add a record. Raises `DamagedRecord` if it does not belong to this source."""


class BackupSource(ABC):
    """A store that is a part of backups, such as the threads."""

    name: str
    """The name of the part in an archive: letters only."""
    address: str
    """The address without a password."""
    presence = ""
    """The start of the message that the store is not empty; by default "There are" and the name."""
    is_log = False
    """`True` for an append-only log, which `find_rest` can compare."""

    def identify(self) -> str:
        """Return a digest of the store's location and machine, to recognise it later."""
        return compute_identity(self.address)

    def find_rest(self, tail: bytes) -> int | None:
        """Return the number of lines after `tail`, the last line of a backup of this log.

        `None` if the log is shorter. Raises `ConfigurationFailed` if the log is longer than that of
        the backup and a different one.
        """
        del tail
        return None

    @abstractmethod
    def is_there(self) -> bool:
        """Return `True` if the store may exist."""

    @abstractmethod
    def snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        """Open a snapshot; servers may continue to write."""

    @abstractmethod
    def replace(self) -> AbstractAsyncContextManager[Replacement]:
        """Open a replacement, which is committed when the block ends, unless it raises."""


def compute_identity(address: str, path: Path | None = None) -> str:
    """Return a digest of an address or path, together with this machine's name."""
    words = [platform.node(), address]
    if path is not None:
        words.append(str(path.resolve()))
        with suppress(OSError):  # the inode differs in a copy of the machine
            words.append(str(path.stat().st_ino))
    return hashlib.sha256("\n".join(words).encode()).hexdigest()
