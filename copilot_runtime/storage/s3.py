"""Storage in a bucket of S3, or of what speaks its protocol: MinIO, R2, Ceph and others."""

import asyncio
import hashlib
import logging
import re
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from copilot_runtime.concurrency import capture
from copilot_runtime.errors import CopilotError
from copilot_runtime.storage.storage import (
    RESERVED,
    ObjectChanged,
    ObjectNotFound,
    Storage,
    StorageFailed,
    check_key,
    check_log_key,
    check_prefix,
    is_log_key,
)

APPENDS = f"{RESERVED}appends/"
"""Where what was appended to an object is, until it is merged into it."""

MERGE_AFTER = 64
"""After so many appends to an object, one writer merges them."""

_MARKS = "merged"
_MOST_WRITERS = 60  # metadata of an object may have 2 kB
_AT_ONCE = 32
_ATTEMPTS = 20
_CODE = re.compile(r"<Code>(\w+)</Code>")
_REGION = re.compile(r"<Region>([\w-]+)</Region>|expecting '([\w-]+)'")
_WRONG_REGION = ("PermanentRedirect", "AuthorizationHeaderMalformed", "redirect without LOCATION")
_WRONG_KEYS = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}

_CLIENT = {
    "allow_http": True,  # an endpoint of one's own; that of AWS is https
    "connect_timeout": "5s",
    "read_timeout": "30s",
    "timeout": "10 minutes",  # of a request with all its data: vectors may be a gigabyte
}

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Segment(NamedTuple):
    """The name of what one append has written: a writer numbers its own."""

    time: int
    writer: str
    number: int

    def __str__(self) -> str:
        return f"{self.time:016x}-{self.writer}-{self.number:x}"


class _Base(NamedTuple):
    """An object without what was appended to it since."""

    data: bytes = b""
    etag: str = ""
    marks: Mapping[str, int] = {}
    """For each writer, the number of its last segment that is part of the data."""


@dataclass
class _Log:
    """What this process appends to one object: one segment after the other."""

    pending: list[tuple[bytes, asyncio.Future[None]]] = field(
        default_factory=list[tuple[bytes, asyncio.Future[None]]]
    )
    task: asyncio.Task[None] | None = None
    number: int = 0
    unmerged: int = 0


class S3Storage(Storage):
    """Keeps each object in a bucket, below a prefix.

    S3 cannot append. What is appended is written as a segment beside the object, which only its
    writer writes, and a reader joins the segments: writers never wait for each other, and lose
    nothing. Now and then a writer merges them into the object with a conditional write, which
    notes in the object's metadata what is part of it; where a server does not know conditional
    writes, nothing is merged. What one process appends at the same time is one segment.

    Keys and secrets are those of the environment (`AWS_ACCESS_KEY_ID` and so on) or of the machine,
    as everywhere with AWS.
    """

    def __init__(
        self, bucket: str, prefix: str = "", *, region: str = "", endpoint: str = "", **options: Any
    ) -> None:
        self.bucket = bucket
        self.prefix = prefix.strip("/")
        self._region = region
        self._endpoint = endpoint
        if region:
            options["region"] = region
        if endpoint:
            options["endpoint"] = endpoint
        options.setdefault("client_options", _CLIENT)
        options.setdefault(
            "retry_config", {"max_retries": 4, "retry_timeout": timedelta(seconds=60)}
        )
        self._store = S3Store(bucket, prefix=self.prefix or None, **options)
        self._writer = secrets.token_hex(4)
        self._last_time = 0
        self._logs: dict[str, _Log] = {}
        self._conditional: bool | None = None
        self._threads: ThreadPoolExecutor | None = None

    async def put(self, key: str, data: bytes, *, expected: str | None = None) -> str:
        check_key(key)
        if expected is not None and not await self._is_conditional():
            raise StorageFailed(
                f"The server of the bucket {self.bucket!r} ignores conditions of writes.",
                hint="Use a server that knows If-Match, as S3 does since 2024.",
                public=_PUBLIC,
            )
        if not is_log_key(key):
            return await self._put(key, data, expected)
        segments = await self._find_segments(key)
        while len({segment.writer for segment in segments}) > _MOST_WRITERS:
            await self.merge(key)
            segments = await self._find_segments(key)
        base = await self._head(key)
        if expected is not None and expected != _join_etags(base.etag, segments):
            raise ObjectChanged(key)
        etag = await self._put(
            key, data, None if expected is None else base.etag, marks=_mark(segments)
        )
        await self._delete_segments(key, segments)
        return etag

    async def put_many(self, objects: Mapping[str, bytes]) -> dict[str, str]:
        return await self._each(objects, lambda key: self.put(key, objects[key]))

    async def read(self, key: str, start: int = 0) -> tuple[bytes, str]:
        if not is_log_key(check_key(key)):
            base = await self._get(key)
            return base.data[start:], base.etag
        for _ in range(_ATTEMPTS):
            segments = await self._find_segments(key)
            try:
                base = await self._get(key)
            except ObjectNotFound:
                if not segments:
                    raise
                base = _Base()
            try:
                parts = await self._read_segments(key, base.marks, segments)
            except ObjectNotFound:  # merged meanwhile
                continue
            return b"".join([base.data, *parts])[start:], _join_etags(base.etag, segments)
        raise StorageFailed(f"The object {key!r} changes too fast to be read.")

    async def read_many(self, keys: Iterable[str]) -> dict[str, tuple[bytes, str]]:
        async def read(key: str) -> tuple[bytes, str] | None:
            try:
                return await self.read(key)
            except ObjectNotFound:
                return None

        found = await self._each(keys, read)
        return {key: item for key, item in found.items() if item is not None}

    async def delete(self, key: str) -> bool:
        segments = await self._find_segments(key) if is_log_key(check_key(key)) else []
        base = await self._head(key)
        await self._delete_segments(key, segments)
        if base.etag:
            await self._call(key, lambda: self._store.delete(key))
        return bool(base.etag or segments)

    async def delete_many(self, keys: Iterable[str]) -> list[str]:
        results = await self._each(keys, self.delete)
        return [key for key, was_there in results.items() if was_there]

    async def etag(self, key: str) -> str:
        if not is_log_key(check_key(key)):
            return (await self._head(key)).etag
        segments, base = await asyncio.gather(self._find_segments(key), self._head(key))
        return _join_etags(base.etag, segments)

    async def find_many_etags(self, keys: Iterable[str]) -> dict[str, str]:
        return await self._each(keys, self.etag)

    async def append(self, key: str, data: bytes) -> None:
        """Add to the end of an object, together with what else this process appends just now."""
        log = self._logs.setdefault(check_log_key(key), _Log())
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        log.pending.append((data, done))
        if log.task is None or log.task.done():
            log.task = asyncio.create_task(self._write_log(key, log))
        await done

    async def find_etags(self, prefix: str = "") -> dict[str, str]:
        check_prefix(prefix)
        objects, appends = await asyncio.gather(self._list(prefix), self._list(APPENDS + prefix))
        times = {key: (changed, etag) for key, (changed, etag) in objects.items()}
        segments: dict[str, list[Segment]] = {}
        for name, (changed, _) in appends.items():
            key, _, segment = name.removeprefix(APPENDS).rpartition("/")
            segments.setdefault(key, []).append(_parse_segment(segment))
            before, etag = times.get(key, (changed, ""))
            times[key] = max(before, changed), etag
        order = sorted(times, key=lambda key: (times[key][0], key))
        return {key: _join_etags(times[key][1], segments.get(key, [])) for key in order}

    async def aclose(self) -> None:
        """Wait for what is on its way."""
        tasks = [log.task for log in self._logs.values() if log.task is not None]
        await asyncio.gather(*tasks)
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None

    async def merge(self, key: str) -> bool:
        """Make what was appended part of the object, and return whether that was possible."""
        if not await self._is_conditional():
            return False
        segments = await self._find_segments(key)
        try:
            base = await self._get(key)
        except ObjectNotFound:
            base = _Base()
        # a segment that is part of the data must be gone before the marks say nothing of it
        await self._delete_segments(key, [one for one in segments if _is_merged(one, base.marks)])
        fresh = [one for one in segments if not _is_merged(one, base.marks)]
        writers = [*dict.fromkeys(segment.writer for segment in fresh)][:_MOST_WRITERS]
        fresh = [segment for segment in fresh if segment.writer in writers]
        if not fresh:
            return False
        try:
            parts = await self._read_segments(key, {}, fresh)
            data = b"".join([base.data, *parts])
            await self._put(key, data, base.etag, marks=_mark(fresh))
        except (ObjectChanged, ObjectNotFound):  # another writer merges
            return False
        await self._delete_segments(key, fresh)
        return True

    async def _write_log(self, key: str, log: _Log) -> None:
        """Write what waits to be appended, and then what came meanwhile."""
        if not log.number:
            log.unmerged = await self._count_segments(key)
        while log.pending:
            batch, log.pending = log.pending, []
            log.number += 1
            self._last_time = max(time.time_ns(), self._last_time + 1)
            name = f"{APPENDS}{key}/{Segment(self._last_time, self._writer, log.number)}"
            put = self._put(name, b"".join(data for data, _ in batch), None)
            error = (await capture(put)).error
            for _, done in batch:
                if done.done():  # its task was cancelled
                    continue
                if error is None:
                    done.set_result(None)
                else:
                    done.set_exception(error)
            log.unmerged += error is None
            if log.unmerged >= MERGE_AFTER:
                log.unmerged = 0
                await self._merge_or_log(key)

    async def _count_segments(self, key: str) -> int:
        """Return how much waits to be merged, also of processes that have ended."""
        try:
            return len(await self._find_segments(key))
        except CopilotError:  # the write will say it
            return 0

    async def _merge_or_log(self, key: str) -> None:
        try:
            await self.merge(key)
        except CopilotError as error:
            logger.warning("What was appended to %s is not merged yet: %s", key, error.message)

    async def _find_segments(self, key: str) -> list[Segment]:
        folder = f"{APPENDS}{key}/"
        names = [name.removeprefix(folder) for name in await self._list(folder)]
        return sorted(_parse_segment(name) for name in names if "/" not in name)

    async def _read_segments(
        self, key: str, marks: Mapping[str, int], segments: Iterable[Segment]
    ) -> list[bytes]:
        names = [
            f"{APPENDS}{key}/{segment}" for segment in segments if not _is_merged(segment, marks)
        ]
        found = await self._each(names, self._get)
        return [base.data for base in found.values()]

    async def _delete_segments(self, key: str, segments: Iterable[Segment]) -> None:
        names = [f"{APPENDS}{key}/{segment}" for segment in segments]
        if names:
            await self._call(key, lambda: self._store.delete(names))

    async def _put(self, key: str, data: bytes, expected: str | None, marks: str = "") -> str:
        """Write an object if its own etag is the one expected, and return the new one."""
        attributes: dict[str, str] | None = {_MARKS: marks} if marks else None
        mode: Any = "create" if expected == "" else {"e_tag": expected} if expected else None
        result = await self._call(
            key,
            lambda: self._store.put(
                key, data, attributes=attributes, mode=mode, use_multipart=False
            ),
        )
        return result["e_tag"] or ""

    async def _get(self, key: str) -> _Base:
        def work() -> _Base:
            result = self._store.get(key)
            marks = _parse_marks(result.attributes.get(_MARKS, ""))
            return _Base(bytes(result.bytes()), result.meta["e_tag"] or "", marks)

        return await self._call(key, work)

    async def _head(self, key: str) -> _Base:
        try:
            meta = await self._call(key, lambda: self._store.head(key))
        except ObjectNotFound:
            return _Base()
        return _Base(etag=meta["e_tag"] or "")

    async def _list(self, prefix: str) -> dict[str, tuple[datetime, str]]:
        """Return keys that begin with a prefix, when they were written, and their own etags."""
        folder, _, _ = prefix.rpartition("/")
        own = prefix.startswith(APPENDS)
        metas = await self._call(prefix, lambda: self._store.list(folder or None).collect())
        return {
            meta["path"]: (meta["last_modified"], meta["e_tag"] or "")
            for meta in metas
            if meta["path"].startswith(prefix) and (own or not meta["path"].startswith(RESERVED))
        }

    async def _is_conditional(self) -> bool:
        """Try once whether the server heeds the condition of a write."""
        if self._conditional is None:
            key = f"{RESERVED}probes/{secrets.token_hex(8)}"
            etag = await self._put(key, b"1", None)
            await self._put(key, b"2", None)
            try:
                await self._put(key, b"3", etag)
            except ObjectChanged:
                self._conditional = True
            else:
                self._conditional = False
                logger.warning("The server of %s ignores conditions of writes.", self.bucket)
            await self._call(key, lambda: self._store.delete(key))
        return self._conditional

    async def _each(
        self, keys: Iterable[str], work: Callable[[str], Coroutine[Any, Any, T]]
    ) -> dict[str, T]:
        """Do something for each key, a number of them at a time."""

        async def do(key: str) -> T:
            async with slots:
                return await work(key)

        slots, keys = asyncio.Semaphore(_AT_ONCE), [*keys]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {key: group.create_task(do(key)) for key in keys}
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return {key: task.result() for key, task in tasks.items()}

    async def _call(self, key: str, request: Callable[[], T]) -> T:
        """Send a request, and wait for it in a thread. What goes wrong is said in our words.

        Not with obstore's own coroutines: its threads, which then call into Python, may be at it
        still when the process ends, and abort it.
        """
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="s3")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, request)
        except (BaseError, FileNotFoundError, ValueError) as error:
            raise self._explain(key, error) from error

    def _explain(self, key: str, error: Exception) -> CopilotError:
        text = str(error)
        code = found[1] if (found := _CODE.search(text)) else ""
        where = f"The bucket {self.bucket!r}"
        at = f" at {self._endpoint}" if self._endpoint else ""
        if code == "NoSuchBucket":
            return StorageFailed(
                f"There is no bucket {self.bucket!r}{at}.",
                hint="Make it first, or correct the address of the storage.",
                public=_PUBLIC,
            )
        if isinstance(error, FileNotFoundError):
            return ObjectNotFound(key)
        if isinstance(error, PreconditionError | AlreadyExistsError):
            return ObjectChanged(key)
        if any(sign in text for sign in _WRONG_REGION):
            found = _REGION.search(text)
            region = f": it is in {found[1] or found[2]!r}" if found else ""
            return StorageFailed(
                f"{where} is not in the region {self._region or 'us-east-1'!r}{region}.",
                hint="Add ?region=… to the address of the storage, or set S3_REGION.",
                public=_PUBLIC,
            )
        if "/latest/api/token" in text or "/latest/meta-data" in text:
            return StorageFailed(
                f"{where} cannot be used: there are no credentials.",
                hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role.",
                public=_PUBLIC,
            )
        if isinstance(error, PermissionDeniedError | UnauthenticatedError) or code in _WRONG_KEYS:
            return StorageFailed(
                f"{where}{at} may not be used: {code or 'access denied'}.",
                hint="Look at the credentials, and at what their policy allows: reading, writing, "
                "listing and deleting.",
                public=_PUBLIC,
            )
        reason = code or text.partition("\n")[0][-200:]
        return StorageFailed(f"{where}{at} failed: {reason}.", public=_PUBLIC)


_PUBLIC = "The storage of knowledge failed."


def _parse_segment(name: str) -> Segment:
    moment, writer, number = name.split("-")
    return Segment(int(moment, 16), writer, int(number, 16))


def _is_merged(segment: Segment, marks: Mapping[str, int]) -> bool:
    return segment.number <= marks.get(segment.writer, 0)


def _mark(segments: Iterable[Segment]) -> str:
    """Return as text which segments an object has taken in: of each writer, up to a number."""
    marks: dict[str, int] = {}
    for segment in segments:
        marks[segment.writer] = max(segment.number, marks.get(segment.writer, 0))
    return ",".join(f"{writer}-{number:x}" for writer, number in marks.items())


def _parse_marks(text: str) -> dict[str, int]:
    pairs = (mark.split("-") for mark in text.split(",") if mark)
    return {writer: int(number, 16) for writer, number in pairs}


def _join_etags(etag: str, segments: Iterable[Segment]) -> str:
    """Return the etag of an object with what was appended to it."""
    names = ",".join(map(str, sorted(segments)))
    return f"{etag}+{hashlib.sha256(names.encode()).hexdigest()[:16]}" if names else etag
