"""A file of DuckDB that is open only while it is used, by one process after another."""

import logging
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, TypeVar

try:
    import fcntl
except ImportError:  # on Windows, DuckDB's own lock has to do
    fcntl = None

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

T = TypeVar("T")

State = tuple[int, int]
"""When a file was changed, in nanoseconds, and how many bytes it has."""

_PAUSE = 0.01
_LOCKED = ("lock", "different configuration")
_BROKEN = ("not a valid duckdb", "corrupt", "checksum", "deserializ", "serialization error")

_OPTIONS: dict[str, str | bool | int | float | list[str]] = {
    "threads": "1",
    "memory_limit": "256MB",
    "enable_external_access": "false",
}

logger = logging.getLogger(__name__)


class FileLocked(Exception):
    """Another program has the file open."""


class DatabaseFile:
    """A file of DuckDB.

    Users of it wait for each other by a lock of the system on a file beside it, and for programs
    that know nothing of that by trying again. `patience` is for how many seconds.
    """

    def __init__(self, path: Path, patience: float) -> None:
        self.path = path
        self._patience = patience

    def find_state(self) -> State | None:
        """Return the state of the file; None without one."""
        try:
            stat = self.path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size

    @contextmanager
    def lock(self) -> Generator[None]:
        """Keep others out. Raises `FileLocked` if they do not leave."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._retry(lambda: _take(descriptor))
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def open(self) -> Generator["DuckDBPyConnection"]:
        """Connect to the file, which is made if it is not there, or cannot be read.

        Raises `FileLocked`, and what DuckDB raises.
        """
        connection = self._retry(self._connect)
        try:
            yield connection
        finally:
            connection.close()

    def _connect(self) -> "DuckDBPyConnection":
        import duckdb

        try:
            return duckdb.connect(str(self.path), config=_OPTIONS)
        except duckdb.Error as error:
            text = str(error).lower()
            if any(word in text for word in _BROKEN):
                self._set_aside()
                return duckdb.connect(str(self.path), config=_OPTIONS)
            if any(word in text for word in _LOCKED):
                raise FileLocked from error
            raise

    def _retry(self, action: Callable[[], T]) -> T:
        deadline = monotonic() + self._patience
        while True:
            try:
                return action()
            except FileLocked:
                if monotonic() > deadline:
                    raise
            sleep(_PAUSE)  # in a thread: it waits for another process

    def _set_aside(self) -> None:
        aside = self.path.with_name(f"{self.path.name}.broken-{datetime.now(UTC):%Y%m%dT%H%M%S%f}")
        self.path.replace(aside)
        with suppress(OSError):
            self.path.with_name(f"{self.path.name}.wal").unlink()
        logger.error("'%s' cannot be read: it is now '%s'.", self.path.name, aside)


def _take(descriptor: int) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise FileLocked from error
