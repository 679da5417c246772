"""Detect which servers that share a file of threads are alive: each holds a lock while it runs.

The lock is the operating system's (`flock`), which releases it however the process ends. Without
`flock` (Windows), an open file serves as the lock, because it cannot be deleted.
"""

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


class Server:
    """This server, which other servers detect by a lock file next to the database."""

    def __init__(self, database: Path) -> None:
        self.id = uuid4().hex[:16]
        self._lock_path = _lock_path(database, self.id)
        self._file = _create_lock(self._lock_path)

    def leave(self) -> None:
        """Release and delete the lock when this server stops."""
        if fcntl is not None:
            # before the lock is free: no other server can take it
            self._lock_path.unlink(missing_ok=True)
        os.close(self._file)
        self._lock_path.unlink(missing_ok=True)


def is_alive(database: Path, server: str) -> bool:
    """Return whether a server is alive. The lock file of a dead one is deleted."""
    path = _lock_path(database, server)
    if fcntl is None:
        return not _try_unlink(path)
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except PermissionError:  # of another user's process, which may well be alive
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def list_other_locks(database: Path, server: str) -> Sequence[str]:
    """Return the ids of other servers with a lock file, perhaps including one that just died."""
    return [other for other in _list_locks(database) if other != server]


def remove_stale_locks(database: Path) -> None:
    """Delete the lock files of all dead servers."""
    for server in _list_locks(database):
        is_alive(database, server)


def _list_locks(database: Path) -> Sequence[str]:
    paths = database.parent.glob(f"{glob.escape(database.name)}-server-*")
    return [path.name.rpartition("-")[2] for path in paths]


def _lock_path(database: Path, server: str) -> Path:
    return database.with_name(f"{database.name}-server-{server}")


def _create_lock(path: Path) -> int:
    """Create and lock a file, and return its descriptor; retry if another process deleted it."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        if fcntl is None:
            return file
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            if path.stat().st_ino == os.fstat(file).st_ino:
                return file
        except FileNotFoundError:
            pass
        os.close(file)


def _try_unlink(path: Path) -> bool:
    try:
        path.unlink(missing_ok=True)
    except PermissionError:
        return False
    return True
