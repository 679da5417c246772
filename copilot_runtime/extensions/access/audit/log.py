"""The audit log file: several processes of a machine append to it, and it is rotated."""

import asyncio
import fcntl
import logging
import os
import re
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from copilot_runtime.base.errors import ConfigurationFailed, LimitExceeded
from copilot_runtime.extensions.access.audit.entry import AuditRecord, parse_line, seal
from copilot_runtime.security.addresses import find_network

logger = logging.getLogger(__name__)

_MOST_WAITING = 100_000
"""Maximum pending records while the disk fails; further ones are counted and dropped."""
_BATCH = 1_000
"""Maximum records of one write."""
_RETRY_SECONDS = 5.0
_TAIL = 64 * 1024
"""Bytes read from the end of a file; no line is longer."""


class Tail(NamedTuple):
    """The number and the hash of a log's last line."""

    number: int = 0
    hash: str = ""


class AuditLog:
    """Writes records asynchronously and in order; none is lost while the disk works.

    `record` never blocks. A full file is renamed and never changed again, until it is deleted as
    the oldest of more than `max_files`.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        key: str = "",
        max_bytes: int = 50 * 1024 * 1024,
        max_files: int = 20,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = Path(path)
        self._key = key.encode()
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._clock = clock
        self._waiting: deque[AuditRecord] = deque()
        self._lost = 0
        self._task: asyncio.Task[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._is_failing = False
        self._is_stuck = False
        self._refusals = RefusalCounter()

    def record(self, record: AuditRecord) -> None:
        """Queue a record; refusals are limited to some per minute and subject."""
        skipped = self._refusals.count(record) if is_refusal(record) else 0
        if skipped < 0:
            return
        if len(self._waiting) >= _MOST_WAITING:
            self._lost += 1
            return
        reason = f"{record.reason} ({skipped} more before)" if skipped else record.reason
        self._waiting.append(replace(record, time=self._clock(), reason=reason).clip())
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._drain(), name="audit log")

    async def flush(self) -> None:
        """Wait until all queued records are written; return at once while the disk fails."""
        if self._task is not None and not self._is_failing:
            await asyncio.shield(self._task)

    async def aclose(self) -> None:
        """Write queued records. If the disk fails, they are lost, which is logged."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        if self._writing is not None:  # a thread cannot be cancelled
            await asyncio.wait((self._writing,))
        try:
            await asyncio.to_thread(self._write_waiting)
        except (OSError, ValueError) as error:
            logger.error("%d lines of the audit log are lost: %s", len(self._waiting), error)
            self._waiting.clear()

    def check(self) -> None:
        """Raise `ConfigurationFailed` if the file cannot be written or is not an audit log."""
        try:
            self._append([])
        except ValueError as error:
            raise ConfigurationFailed(
                f"The audit log '{self.path}' cannot be written: {error}.",
                hint="Set audit.file to a file of the audit log, or to one that is not there yet.",
            ) from error
        except OSError as error:
            raise ConfigurationFailed(
                f"The audit log '{self.path}' cannot be written: {error.strerror or error}.",
                hint="Set audit.file to a file that this user may write.",
            ) from error

    def write(self, records: Sequence[AuditRecord]) -> None:
        """Append records synchronously, for commands. Raises `OSError` or `ValueError`."""
        rest = [record.clip() for record in records]
        while rest:
            del rest[: self._append(rest)]

    def _append(self, records: Sequence[AuditRecord]) -> int:
        """Append records until the file is full, and return their number.

        A full file is rotated. Raises `OSError`, or `ValueError` if the last line of the file is
        not a line of an audit log.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock(), _open_private(self.path) as file:
            tail = read_tail(file, self.path)
            before = size = file.seek(0, os.SEEK_END)
            lines: list[bytes] = []
            for record in records:
                line, digest = seal(record.encode(), tail.number + 1, tail.hash, self._key)
                lines.append(line)
                tail = Tail(tail.number + 1, digest)
                size += len(line)
                if size >= self._max_bytes:
                    break
            _write(file, b"".join(lines), before)
            if size >= self._max_bytes:
                self._try_rotate(tail)
        return len(lines)

    async def _drain(self) -> None:
        while self._waiting:
            self._writing = asyncio.ensure_future(asyncio.to_thread(self._write_waiting))
            try:
                await asyncio.shield(self._writing)
            except (OSError, ValueError) as error:
                if not self._is_failing:
                    logger.error("The audit log cannot be written, and is tried again: %s", error)
                self._is_failing = True
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if self._lost:
                logger.error("%d lines of the audit log are lost: too many waited", self._lost)
                self._lost = 0
            self._is_failing = False

    def _write_waiting(self) -> None:
        """Write queued records, in a thread, and remove each batch once it is written."""
        while batch := [*islice(self._waiting, _BATCH)]:
            for _ in range(self._append(batch)):
                self._waiting.popleft()

    @contextmanager
    def _lock(self) -> Generator[None]:
        """Hold the lock against other processes for the length of a block."""
        with _open_private(self.path.with_name(f"{self.path.name}.lock")) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _try_rotate(self, tail: Tail) -> None:
        """Rotate; if that fails, the file grows, as its records must not be written twice."""
        try:
            self._rotate(tail)
        except OSError as error:
            if not self._is_stuck:
                logger.error(
                    "The audit log cannot be rotated, and grows beyond audit.max_bytes or "
                    "audit.max_files: %s",
                    error,
                )
            self._is_stuck = True
        else:
            self._is_stuck = False

    def _rotate(self, tail: Tail) -> None:
        """Start a new file, which continues the hash chain, and delete the oldest ones."""
        full = self.path.with_name(f"{self.path.stem}-{tail.number:012d}{self.path.suffix}")
        self.path.rename(full)
        line, _ = seal(
            AuditRecord(action="log.rotate", outcome="allowed", time=self._clock()).encode(),
            tail.number + 1,
            tail.hash,
            self._key,
        )
        with _open_private(self.path) as file:
            _write(file, line, 0)
        for old in list_files(self.path)[: -self._max_files]:
            old.unlink()


def _open_private(path: Path) -> BinaryIO:
    """Open a file for appending; if it is missing, create it, readable by its owner only."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    return os.fdopen(descriptor, "r+b", buffering=0)


def _write(file: BinaryIO, data: bytes, size: int) -> None:
    """Append data completely, or truncate the file to `size` again. Raises `OSError`.

    A partial write would be repeated with each retry.
    """
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
    except OSError:
        with suppress(OSError):
            file.truncate(size)
        raise


def list_files(path: Path) -> list[Path]:
    """Return the files of a log, oldest first."""
    pattern = re.compile(rf"{re.escape(path.stem)}-\d{{12}}{re.escape(path.suffix)}")
    folder = path.parent
    full = sorted(one for one in folder.iterdir() if pattern.fullmatch(one.name))
    return [*full, *([path] if path.exists() else [])]


def read_tail(file: BinaryIO, path: Path) -> Tail:
    """Return the tail of a log; cut off a partial line, which a killed process has left.

    Raises `ValueError` if the last line is not a line of an audit log.
    """
    size = file.seek(0, os.SEEK_END)
    if not size:
        return _find_tail_before(path)
    file.seek(max(0, size - _TAIL))
    data = file.read()
    if not data.endswith(b"\n"):
        rest = data.rpartition(b"\n")[2]
        logger.warning("The last line of the audit log was written half, and is cut off.")
        file.truncate(size - len(rest))
        data = data[: -len(rest)]
        if not data:
            return _find_tail_before(path)
    return _parse_tail(data.rstrip(b"\n").rpartition(b"\n")[2])


def _find_tail_before(path: Path) -> Tail:
    """Return the tail of the file before an empty one."""
    before = [one for one in list_files(path) if one != path]
    if not before:
        return Tail()
    with before[-1].open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        return _parse_tail(file.read().rstrip(b"\n").rpartition(b"\n")[2])


def _parse_tail(line: bytes) -> Tail:
    with suppress(ValueError):
        fields = parse_line(line)
        number, digest = fields.get("number"), fields.get("hash")
        if isinstance(number, int) and isinstance(digest, str):
            return Tail(number, digest)
    raise ValueError(
        "its last line is none of an audit log (see `copilot-runtime operate audit verify`); move "
        "the file away, and a new one begins"
    )


_PER_MINUTE = 20
"""Maximum lines per minute about refusals of one user, or of one address if anonymous."""
_LIMITS_PER_MINUTE = 1
"""Maximum lines per minute about exceeded limits: further ones have no new information."""
_MOST_SUBJECTS = 10_000
"""Maximum users and addresses that are counted in a minute; all others share one count."""


def is_refusal(record: AuditRecord) -> bool:
    """Return `True` for a refused or failed request, which a client may cause at any rate."""
    return record.outcome == "refused" or (record.outcome == "failed" and record.status is not None)


class RefusalCounter:
    """Counts refusals per subject, so that they cannot push other records out of the log."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._minute = 0
        self._counts: dict[str, int] = {}
        self._skipped: dict[str, int] = {}

    def count(self, record: AuditRecord) -> int:
        """Return the number of refusals omitted before this one, or -1 to omit it as well."""
        if (minute := int(self._clock() // 60)) != self._minute:
            self._minute, self._counts = minute, {}
        is_limit = record.status == 429 or record.reason.startswith(LimitExceeded.code)
        kind, most = ("limit", _LIMITS_PER_MINUTE) if is_limit else ("", _PER_MINUTE)
        has_signed_in = record.user and record.status != HTTPStatus.UNAUTHORIZED
        name = f"user {record.user}" if has_signed_in else find_network(record.address)
        subject = f"{kind}:{name}"
        if subject not in self._counts and len(self._counts) >= _MOST_SUBJECTS:
            subject = kind
        number = self._counts[subject] = self._counts.get(subject, 0) + 1
        if number <= most:
            return self._skipped.pop(subject, 0)
        if len(self._skipped) >= _MOST_SUBJECTS and subject not in self._skipped:
            del self._skipped[next(iter(self._skipped))]
        self._skipped[subject] = self._skipped.get(subject, 0) + 1
        return -1
