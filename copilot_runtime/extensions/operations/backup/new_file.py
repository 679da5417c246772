"""A file that gets its name only when it is complete.

Until then, it is a part file in the same folder.

The writer of a part file holds its `flock`, which the operating system releases when the process
ends. On Windows, which has no `flock`, an open file cannot be deleted, which has the same effect.
"""

import glob
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from copilot_runtime.base.errors import ConfigurationFailed, StoreFailed

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


class NewFile:
    """A file that only its owner may read, and that replaces another one only with `force`.

    Raises `ConfigurationFailed` if the name is taken, and `StoreFailed`.
    """

    def __init__(self, path: Path, *, force: bool) -> None:
        self._path = path
        self._force = force
        self._part = path.with_name(f".{path.name}.{uuid4().hex[:16]}.part")

    def __enter__(self) -> BinaryIO:
        if not self._force and os.path.lexists(self._path):
            raise _refuse_to_replace(self._path)
        try:
            self._file, self._lock = _create(self._part)
        except OSError as error:
            raise explain_error(self._path, error) from error
        return self._file

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            with self._file:
                if kind is None:
                    self._file.flush()
                    os.fsync(self._file.fileno())
            if kind is None:
                self._name()
        except OSError as error:
            raise explain_error(self._path, error) from error
        finally:
            with suppress(OSError):
                self._part.unlink(missing_ok=True)
            if self._lock is not None:
                os.close(self._lock)

    def _name(self) -> None:
        """Give the file its name, which another process may have taken meanwhile."""
        if not self._force:
            try:
                os.link(self._part, self._path)
                return
            except FileExistsError:
                raise _refuse_to_replace(self._path) from None
            except OSError:
                pass  # a file system without links
        self._part.replace(self._path)


def remove_stale_parts(path: Path) -> Sequence[Path]:
    """Delete the part files of a path whose writers were killed, and return their paths."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]+\.part")
    parts = path.parent.glob(f".{glob.escape(path.name)}.*.part")
    return [part for part in sorted(parts) if pattern.fullmatch(part.name) and _try_remove(part)]


def explain_error(path: Path, error: OSError) -> StoreFailed:
    """Return our error for one of the file system."""
    return StoreFailed(
        f"The file '{path}' cannot be used: {error.strerror or error}.",
        hint="See whether the disk has room, and whether this user may use it.",
    )


def _create(path: Path) -> tuple[BinaryIO, int | None]:
    """Create a file, and return it with the descriptor that has its lock, or None on Windows.

    Another process may delete it as stale before it is locked: then a new one is created.
    """
    while True:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        file = os.fdopen(descriptor, "wb")
        if fcntl is None:
            return file, None
        with suppress(OSError):  # a file system without locks: part files are not deleted there
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if path.exists():
            return file, os.dup(descriptor)  # it is locked until it has its name
        file.close()


def _try_remove(path: Path) -> bool:
    """Delete a file unless a process holds its lock; return `True` if it was deleted."""
    try:
        if fcntl is None:
            path.unlink()
            return True
        descriptor = os.open(path, os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError:  # it is gone, in use, or of another user
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _refuse_to_replace(path: Path) -> ConfigurationFailed:
    return ConfigurationFailed(
        f"There is a file '{path}' already: nothing was backed up.",
        hint="Name another one, or replace it by --force.",
    )
