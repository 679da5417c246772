"""The interface of the parts of a backup: snapshot and replacement of a store."""

import hashlib
import platform
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.operations.backup.record import PackedRecord, Record
from copilot_runtime.extensions.operations.database import Place, explain_errors, open_transaction
from copilot_runtime.threads.transactions import Transaction


class Snapshot(ABC):
    """A consistent snapshot of all records of a source."""

    @abstractmethod
    async def count(self) -> int:
        """Return the approximate number of records, for progress."""

    @abstractmethod
    def read(self) -> AsyncGenerator[Record, None]:
        """Yield the records, with few in memory at a time."""


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


class DatabaseSource(BackupSource):
    """A store in a database.

    `make_file` creates, migrates and opens a SQLite file; `prepare` creates or migrates the tables
    of PostgreSQL.
    """

    def __init__(
        self,
        place: Place,
        make_file: Callable[[Path], sqlite3.Connection],
        prepare: Callable[[Any], Awaitable[None]],
    ) -> None:
        self.address = place.describe()
        self._place = place
        self._make_file = make_file
        self._prepare = prepare

    def identify(self) -> str:
        if self._place.path is not None:
            return compute_identity("sqlite", self._place.path)
        parts = urlsplit(self._place.url)
        query = [
            pair for pair in parse_qsl(parts.query) if pair[0] in ("host", "port", "search_path")
        ]
        return compute_identity(f"postgres:{parts.hostname}:{parts.port}{parts.path}?{query}")

    def is_there(self) -> bool:
        return self._place.is_there()

    async def _make_tables(self) -> None:
        """Create or migrate the tables, and check that they are ours."""
        if self._place.path is not None:
            async with explain_errors(self._place):
                self._make_file(self._place.path).close()
        else:
            async with open_transaction(self._place, self._prepare):
                pass


def compute_identity(address: str, path: Path | None = None) -> str:
    """Return a digest of an address or path, together with this machine's name."""
    words = [platform.node(), address]
    if path is not None:
        words.append(str(path.resolve()))
        with suppress(OSError):  # the inode differs in a copy of the machine
            words.append(str(path.stat().st_ino))
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


async def hold_servers(db: Transaction, locks: int) -> None:
    """Make starting servers wait for the end of a transaction, by the lock of their migrations.

    SQLite needs none, as it has a single writer.
    """
    await db.fetch("SELECT pg_advisory_xact_lock(?, 0)", locks)


def build_running_error(address: str) -> ConfigurationFailed:
    """Return the error for a store that is in use by servers."""
    return ConfigurationFailed(
        f"Servers use {address}.",
        hint="Stop them first: they would go on with what they remember of what was there.",
    )
