"""Storage in a directory of this machine: each object is a file."""

import asyncio
import errno
import logging
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import Context
from pathlib import Path
from typing import Literal, TypeVar, get_args

from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, Misuse
from copilot_runtime.storage.storage import (
    RESERVED,
    ObjectChanged,
    ObjectNotFound,
    Storage,
    StorageFailed,
    check_key,
    check_log_key,
    check_prefix,
    is_lines_key,
)

try:
    import fcntl
except ImportError:  # Windows: writers in one process only
    fcntl = None

Fsync = Literal["always", "batch", "never"]
"""When written data is flushed to disk, so that it survives a power failure: before a method
returns, within a second, or when the operating system sees fit. A process that is killed loses
nothing in any case."""

BATCH_SECONDS = 1.0

_ATTEMPTS = 100
_OLD_SECONDS = 3600
_MANY_PATHS = 100

_LOCK = "lock"
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
_NO_SUCH_NAME = {errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ}
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

T = TypeVar("T")

logger = logging.getLogger(__name__)


class LocalStorage(Storage):
    """Stores each object as a file below a directory, with its key as the path.

    Files are written beside their places and then renamed. Any number of processes may write: a
    lock makes conditional writes and appends safe between them, where the operating system has
    `flock`. Symbolic links below the directory are not followed; the directory itself may be one.
    Where file names do not tell upper from lower case (macOS, Windows), neither do keys.
    """

    def __init__(self, root: str | Path, *, fsync: Fsync = "batch") -> None:
        if fsync not in get_args(Fsync):
            raise ConfigurationFailed(
                f"The fsync policy {fsync!r} is none of {', '.join(get_args(Fsync))}."
            )
        self.root = Path(root)
        if os.path.exists(root) and not os.path.isdir(root):  # noqa: PTH110, PTH112  # no errors
            raise ConfigurationFailed(
                f"The storage {str(root)!r} is a file, and not a folder.", hint="Name a folder."
            )
        self._fsync = fsync
        self._root = os.path.abspath(root)  # noqa: PTH100
        self._last_time = 0
        self._is_swept = False
        self._dirty: set[str] = set()
        self._dirty_lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._syncing: asyncio.Task[None] | None = None

    async def put(self, key: str, data: bytes, *, expected: str | None = None) -> str:
        etag = await self._run(lambda: self._put({key: data}, expected))
        self._sync_later()
        return etag[key]

    async def put_many(self, objects: Mapping[str, bytes]) -> dict[str, str]:
        etags = await self._run(lambda: self._put(objects, None))
        self._sync_later()
        return etags

    async def put_with_log(
        self,
        objects: Mapping[str, bytes],
        log: str,
        describe: Callable[[Mapping[str, str]], bytes],
    ) -> dict[str, str]:
        def work() -> dict[str, str]:
            self._append(log, describe(self._put(objects, None)))
            return {key: self._find_etag(key) for key in objects}

        etags = await self._run(work)
        self._sync_later()
        return etags

    async def read(self, key: str, start: int = 0) -> tuple[bytes, str]:
        return await self._run(lambda: self._read(key, start))

    async def read_many(self, keys: Iterable[str]) -> dict[str, tuple[bytes, str]]:
        keys = [*keys]
        return await self._run(lambda: self._read_many(keys))

    async def delete(self, key: str) -> bool:
        return bool(await self.delete_many([key]))

    async def delete_many(self, keys: Iterable[str]) -> list[str]:
        keys = [*keys]
        removed = await self._run(lambda: [key for key in keys if self._delete(key)])
        self._sync_later()
        return removed

    async def etag(self, key: str) -> str:
        return await self._run(lambda: self._find_etag(key))

    async def find_many_etags(self, keys: Iterable[str]) -> dict[str, str]:
        keys = [*keys]
        return await self._run(lambda: {key: self._find_etag(key) for key in keys})

    async def append(self, key: str, data: bytes) -> None:
        await self._run(lambda: self._append(key, data))
        self._sync_later()

    async def find_etags(self, prefix: str = "") -> dict[str, str]:
        return await self._run(lambda: self._find(prefix))

    def path(self, key: str) -> Path | None:
        return Path(self._locate(key))

    async def aclose(self) -> None:
        if self._syncing is not None:
            self._syncing.cancel()
            self._syncing = None
        await self._run(self._sync)

    async def _run(self, work: Callable[[], T]) -> T:
        """Run a blocking function in a thread, and convert errors of the operating system."""
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            raise _explain(error, self.root) from error

    def _put(self, objects: Mapping[str, bytes], expected: str | None) -> dict[str, str]:
        return {key: self._put_one(key, data, expected) for key, data in objects.items()}

    def _put_one(self, key: str, data: bytes, expected: str | None) -> str:
        def move(path: str) -> None:
            with self._lock(exclusive=expected is not None):
                if expected is not None and _etag_of(path) != expected:
                    raise ObjectChanged(key)
                os.replace(part, path)  # noqa: PTH105 - no time for paths as objects, here and below

        check_key(key)
        part = self._own_path(secrets.token_hex(8))
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            etag = self._fill_part(descriptor, data)
            self._write_in_folder(key, move)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(part)  # noqa: PTH108
            raise
        return etag

    def _write_in_folder(self, key: str, write: Callable[[str], None]) -> None:
        """Write the file of a key; recreate its folder if it was removed concurrently."""
        for _ in range(_ATTEMPTS):
            try:
                path = self._locate(key, make=True)
                write(path)
            except FileNotFoundError:
                continue
            folder = os.path.dirname(path)  # noqa: PTH120
            self._mark_dirty(folder, [folder, path])
            return
        raise FileNotFoundError(errno.ENOENT, "its folder is removed again and again", key)

    def _own_path(self, name: str) -> str:
        """Return the path of an internal file; on first use, remove leftovers of crashes."""
        folder = f"{self._root}/{RESERVED}"
        if not self._is_swept or not os.path.isdir(folder):  # noqa: PTH112
            _sweep(Path(folder))
            self._is_swept = True
        return f"{folder}/{name}"

    def _fill_part(self, descriptor: int, data: bytes) -> str:
        """Write a temporary file with a unique modification time, and return its etag."""
        try:
            _write_all(descriptor, data)
            self._stamp(descriptor)
            if self._fsync == "always":
                os.fsync(descriptor)
            return _format_etag(os.fstat(descriptor))
        finally:
            os.close(descriptor)

    def _append(self, key: str, data: bytes) -> None:
        def write(path: str) -> None:
            with self._lock(exclusive=False):
                descriptor = os.open(path, _APPEND, 0o666)
                try:
                    self._write_end(descriptor, data, is_lines_key(key))
                finally:
                    os.close(descriptor)

        self._write_in_folder(check_log_key(key), write)

    def _write_end(self, descriptor: int, data: bytes, of_lines: bool) -> None:
        """Append all data or nothing. A torn last line is terminated first."""
        _flock(descriptor, exclusive=True)
        end = os.fstat(descriptor).st_size
        is_torn = of_lines and end and data and _read_all(descriptor, end - 1, end) != b"\n"
        try:
            _write_all(descriptor, b"\n" + data if is_torn else data)
        except BaseException:
            os.ftruncate(descriptor, end)
            raise
        self._stamp(descriptor)
        if self._fsync == "always":
            os.fsync(descriptor)

    def _stamp(self, descriptor: int) -> None:
        """Set a unique modification time, since inodes are reused and file times are coarse."""
        self._last_time = now = max(time.time_ns(), self._last_time + 1)
        if os.utime in os.supports_fd:
            os.utime(descriptor, ns=(now, now))

    def _read(self, key: str, start: int = 0) -> tuple[bytes, str]:
        try:
            descriptor = os.open(self._locate(key), _READ)
        except (FileNotFoundError, NotADirectoryError):
            raise ObjectNotFound(key) from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ObjectNotFound(key)
            return _read_all(descriptor, start, status.st_size), _format_etag(status)
        finally:
            os.close(descriptor)

    def _read_many(self, keys: Iterable[str]) -> dict[str, tuple[bytes, str]]:
        found: dict[str, tuple[bytes, str]] = {}
        for key in keys:
            with suppress(ObjectNotFound):
                found[key] = self._read(key)
        return found

    def _delete(self, key: str) -> bool:
        path = self._locate(key)
        if not _etag_of(path):
            return False
        with self._lock(exclusive=False):
            try:
                os.unlink(path)  # noqa: PTH108
            except FileNotFoundError:  # another one was faster
                return False
        folder = os.path.dirname(path)  # noqa: PTH120
        self._mark_dirty(folder, [folder])
        while folder != self._root:  # empty directories are removed
            try:
                os.rmdir(folder)  # noqa: PTH106
            except OSError:
                break
            folder = os.path.dirname(folder)  # noqa: PTH120
        return True

    def _find_etag(self, key: str) -> str:
        return _etag_of(self._locate(key))

    def _find(self, prefix: str) -> dict[str, str]:
        """Return the keys with a prefix and their etags, without entering other directories."""
        folder, _, start = check_prefix(prefix).rpartition("/")
        self._locate(f"{folder}/any" if folder else "any")
        found = [*_walk(f"{self._root}/{folder}", f"{folder}/" if folder else "", start)]
        return {key: _format_etag(status) for key, status in sorted(found, key=_by_time)}

    def _locate(self, key: str, make: bool = False) -> str:
        """Return the path of a key, with no symbolic link on the way. Raises `Misuse`."""
        folder = self._root
        *folders, name = check_key(key).split("/")
        for part in folders:
            folder = f"{folder}/{part}"
            try:
                mode = os.lstat(folder).st_mode
            except FileNotFoundError:
                if make:
                    self._make_folders(folders)
                break
            except NotADirectoryError:
                break
            if stat.S_ISLNK(mode):
                raise Misuse(
                    f"A symbolic link is on the way to the object {key!r}.",
                    hint=f"Links below {self.root} are not followed.",
                )
        return "/".join([self._root, *folders, name])

    def _make_folders(self, names: Sequence[str]) -> None:
        folder = self._root
        os.makedirs("/".join([folder, *names]), exist_ok=True)  # noqa: PTH103
        for name in names:
            self._mark_dirty(folder, [folder])
            folder = f"{folder}/{name}"

    @contextmanager
    def _lock(self, exclusive: bool) -> Generator[None]:
        """Lock conditional writes against all other writes, across processes."""
        if fcntl is None:
            yield
            return
        descriptor = os.open(self._own_path(_LOCK), os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _flock(descriptor, exclusive)
            yield
        finally:
            os.close(descriptor)

    def _mark_dirty(self, folder: str, paths: Sequence[str]) -> None:
        """Schedule or perform the flush of names and data, as `fsync` demands."""
        if self._fsync == "always":
            with suppress(FileNotFoundError):  # removed meanwhile: nothing of it is to stay
                _sync_path(folder)
        elif self._fsync == "batch":
            with self._dirty_lock:
                self._dirty.update(paths)

    def _sync_later(self) -> None:
        if self._dirty and (self._syncing is None or self._syncing.done()):
            self._syncing = asyncio.create_task(self._sync_soon(), context=Context())

    async def _sync_soon(self) -> None:
        await asyncio.sleep(BATCH_SECONDS)
        await asyncio.to_thread(self._sync)

    def _sync(self) -> None:
        with self._sync_lock:  # `aclose` waits for a running flush
            with self._dirty_lock:
                dirty, self._dirty = self._dirty, set()
            self._sync_all(dirty)

    def _sync_all(self, paths: Collection[str]) -> None:
        if len(paths) > _MANY_PATHS and hasattr(os, "sync"):
            os.sync()  # one request for all file systems is less work than one for each file
            return
        for path in sorted(paths, reverse=True):  # files before their directories
            try:
                _sync_path(path)
            except FileNotFoundError:  # deleted meanwhile
                continue
            except OSError as error:
                logger.warning("%s may not be on the disk: %s.", path, error.strerror)


def _walk(folder: str, prefix: str, start: str = "") -> Iterator[tuple[str, os.stat_result]]:
    try:
        entries = [*os.scandir(folder)]
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if not entry.name.startswith(start) or entry.name.startswith(RESERVED):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, f"{prefix}{entry.name}/")
        elif entry.is_file(follow_symlinks=False):
            with suppress(FileNotFoundError):  # deleted meanwhile
                yield prefix + entry.name, entry.stat(follow_symlinks=False)


def _sweep(folder: Path) -> None:
    """Remove temporary files that a killed process has left."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        with suppress(OSError):
            if file.name != _LOCK and time.time() - file.lstat().st_mtime > _OLD_SECONDS:
                file.unlink()


def _by_time(item: tuple[str, os.stat_result]) -> tuple[int, str]:
    return item[1].st_mtime_ns, item[0]


def _etag_of(path: str) -> str:
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    return _format_etag(status) if stat.S_ISREG(status.st_mode) else ""


def _format_etag(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"


def _read_all(descriptor: int, start: int, size: int) -> bytes:
    """Return the bytes of a file from `start` up to `size`."""
    os.lseek(descriptor, start, os.SEEK_SET)
    parts: list[bytes] = []
    while start < size and (part := os.read(descriptor, size - start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _flock(descriptor: int, exclusive: bool) -> None:
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)


def _sync_path(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _explain(error: OSError, root: Path) -> CopilotError:
    """Return the `CopilotError` for an error of the operating system."""
    what = error.strerror or str(error)
    if error.errno in _NO_SUCH_NAME:
        return Misuse(f"No file can have this name: {what}.", hint="Choose a shorter key.")
    if error.errno == errno.ELOOP:
        return Misuse(
            "The object is a symbolic link.", hint=f"Links below {root} are not followed."
        )
    if isinstance(error, NotADirectoryError | IsADirectoryError | FileExistsError):
        return Misuse(
            "An object cannot lie below another object in a directory.",
            hint="Give one of them another key, such as one with an extension.",
        )
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return StorageFailed(
            f"The storage {root} may not be used: {what}.",
            hint="Give the user of this process the right to read and write there.",
            public="The storage of knowledge may not be written.",
        )
    hint = "Make room there." if error.errno in _NO_SPACE else None
    return StorageFailed(
        f"The storage {root} failed: {what}.", hint=hint, public="The storage of knowledge failed."
    )
