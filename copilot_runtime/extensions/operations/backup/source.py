"""What a part of a backup comes from, and where it is put back."""

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
    """All records of a source, as they were at one moment."""

    @abstractmethod
    async def count(self) -> int:
        """Return about how many records there are: for a display of progress."""

    @abstractmethod
    def read(self) -> AsyncGenerator[Record, None]:
        """Yield the records, a few in memory at a time."""


class Replacement(ABC):
    """Takes the records of a source, all or none of them."""

    @abstractmethod
    async def is_empty(self) -> bool:
        """Return whether nothing is there yet."""

    @abstractmethod
    async def clear(self) -> None:
        """Remove what is there, if all goes well."""

    @abstractmethod
    async def add(self, record: PackedRecord) -> None:
        """Add a record. Raises `DamagedRecord` for one that does not belong here."""


class BackupSource(ABC):
    """One thing that a server keeps, such as its threads."""

    name: str
    """What its records are filed under in an archive: letters alone."""
    address: str
    """Where it is, without a password."""
    presence = ""
    """What is said of a place where there is something; empty for "There are" and the name."""
    is_log = False
    """Whether lines are only ever added to it, so that `find_rest` can compare."""

    def identify(self) -> str:
        """Return a digest of where it is on which machine, to recognize the place again."""
        return compute_identity(self.address)

    def find_rest(self, tail: bytes) -> int | None:
        """Return how many lines there are behind one, the last of a backup of this log.

        None if it is not there: then nothing is known. Raises `ConfigurationFailed` for a log that
        is longer than that of the backup, and another one.
        """
        del tail
        return None

    @abstractmethod
    def is_there(self) -> bool:
        """Return whether there may be something to back up."""

    @abstractmethod
    def snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        """Open it for reading; servers may go on writing."""

    @abstractmethod
    def replace(self) -> AbstractAsyncContextManager[Replacement]:
        """Open it for writing. What was added counts when the block ends, and not if it raises."""


class DatabaseSource(BackupSource):
    """What is in a database.

    `make_file` opens a file of SQLite, and `prepare` a database of PostgreSQL: made, and brought up
    to date, if need be.
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
        """Make the tables, or bring them up to date, and find out whether they are ours."""
        if self._place.path is not None:
            async with explain_errors(self._place):
                self._make_file(self._place.path).close()
        else:
            async with open_transaction(self._place, self._prepare):
                pass


def compute_identity(address: str, path: Path | None = None) -> str:
    """Return a digest of a place: an address as this machine understands it, or a path of it."""
    words = [platform.node(), address]
    if path is not None:
        words.append(str(path.resolve()))
        with suppress(OSError):  # a copy of the whole machine has another file there
            words.append(str(path.stat().st_ino))
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


async def hold_servers(db: Transaction, locks: int) -> None:
    """Let servers that start wait for the end of a transaction: they prepare their tables first.

    SQLite has one writer at a time by itself.
    """
    await db.fetch("SELECT pg_advisory_xact_lock(?, 0)", locks)


def build_running_error(address: str) -> ConfigurationFailed:
    """Return the error for a store that servers use."""
    return ConfigurationFailed(
        f"Servers use {address}.",
        hint="Stop them first: they would go on with what they remember of what was there.",
    )
