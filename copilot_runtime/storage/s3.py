"""Storage in a bucket of S3, or of a compatible service: MinIO, R2, Ceph and others."""

import asyncio
import hashlib
import logging
import re
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from copilot_runtime.base.concurrency import capture_result
from copilot_runtime.base.errors import CopilotError
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
    is_log_key,
    join_lines,
)

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta

APPENDS = f"{RESERVED}appends/"
"""The prefix of appended segments that are not yet merged."""

MERGE_AFTER = 64
"""Number of segments after which a writer merges them."""

_MARKS = "merged"
_MIDLINE = "-midline"
_SEGMENT = re.compile(rf"([0-9a-f]+)-([0-9a-f]+)-([0-9a-f]+)({_MIDLINE})?")
_NO_ETAG = '"00000000000000000000000000000000"'
_MOST_LOGS = 1000
_MOST_WRITERS = 60  # metadata of an object may have 2 kB
_AT_ONCE = 32
_ATTEMPTS = 20
_CODE = re.compile(r"<Code>(\w+)</Code>")
_REGION = re.compile(r"<Region>([\w-]+)</Region>|expecting '([\w-]+)'")
_WRONG_REGION = ("PermanentRedirect", "AuthorizationHeaderMalformed", "redirect without LOCATION")
_WRONG_KEYS = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}

_CLIENT = {
    "allow_http": True,  # a custom endpoint; that of AWS is https
    "connect_timeout": "5s",
    "read_timeout": "30s",
    "timeout": "10 minutes",  # of a request with all its data: vectors may be a gigabyte
}

logger = logging.getLogger(__name__)

T = TypeVar("T")


class AppendSegment(NamedTuple):
    """The name of an appended segment: its writer, and a number of that writer."""

    time: int
    writer: str
    number: int
    ends_midline: bool = False
    size: int = 0

    def __str__(self) -> str:
        name = f"{self.time:016x}-{self.writer}-{self.number:x}"
        return f"{name}{_MIDLINE}" if self.ends_midline else name


class _StoredObject(NamedTuple):
    """An object without its unmerged segments."""

    data: bytes = b""
    """The data, or its end if only a part was read."""
    size: int = 0
    etag: str = ""
    marks: Mapping[str, int] = {}
    """The number of the last merged segment of each writer."""


@dataclass
class _Log:
    """The pending appends of this process to one object."""

    pending: list[tuple[bytes, asyncio.Future[None]]] = field(
        default_factory=list[tuple[bytes, asyncio.Future[None]]]
    )
    task: asyncio.Task[None] | None = None
    unmerged: int | None = None
    """Number of unmerged segments; `None` before the first count."""

    @property
    def is_idle(self) -> bool:
        return self.task is None or self.task.done()


class S3Storage(Storage):
    """Stores objects in a bucket, below a prefix.

    S3 does not support appends. Appended data is written as a segment: a separate object with a
    unique name. Readers join the segments, so writers never wait for each other, and no data is
    lost. From time to time, a writer merges the segments into the object with a conditional write,
    and records the merged ones in the object's metadata. Concurrent appends of one process share a
    segment. A server that ignores conditional writes is refused before the first one.

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
        self._number = 0
        self._logs: dict[str, _Log] = {}
        self._heeds_conditions: bool | None = None
        self._probing = asyncio.Lock()
        self._threads: ThreadPoolExecutor | None = None

    async def put(self, key: str, data: bytes, *, expected: str | None = None) -> str:
        check_key(key)
        await self._require_conditions()
        if not is_log_key(key):
            return await self._put(key, data, expected)
        segments = await self._find_segments(key)
        for _ in range(_ATTEMPTS):
            if len({segment.writer for segment in segments}) <= _MOST_WRITERS:
                break
            await self.merge(key)
            segments = await self._find_segments(key)
        else:
            raise StorageFailed(f"The object {key!r} has too many writers to be replaced.")
        base = await self._head(key)
        if expected is not None and expected != _join_etags(base.etag, segments):
            raise ObjectChanged(key)
        etag = await self._put(
            key, data, None if expected is None else base.etag, marks=_format_marks(segments)
        )
        await self._delete_segments(key, segments)
        return etag

    async def put_many(self, objects: Mapping[str, bytes]) -> dict[str, str]:
        return await self._gather_few(objects, lambda key: self.put(key, objects[key]))

    async def read(self, key: str, start: int = 0) -> tuple[bytes, str]:
        is_log = is_log_key(check_key(key))
        for _ in range(_ATTEMPTS):
            segments = await self._find_segments(key) if is_log else []
            try:
                base = await self._get(key, start)
            except ObjectNotFound:
                if not segments:
                    raise
                base = _StoredObject()
            except ObjectChanged:
                continue
            try:
                data = await self._join_segments(key, base, segments, start)
            except ObjectNotFound:  # merged meanwhile
                continue
            return data, _join_etags(base.etag, segments)
        raise StorageFailed(f"The object {key!r} changes too fast to be read.")

    async def read_many(self, keys: Iterable[str]) -> dict[str, tuple[bytes, str]]:
        async def read(key: str) -> tuple[bytes, str] | None:
            try:
                return await self.read(key)
            except ObjectNotFound:
                return None

        found = await self._gather_few(keys, read)
        return {key: item for key, item in found.items() if item is not None}

    async def delete(self, key: str) -> bool:
        segments = await self._find_segments(key) if is_log_key(check_key(key)) else []
        if (
            segments
        ):  # empties the object and its segments in one request, so that a crash leaves no part
            await self.put(key, b"")
        elif not (await self._head(key)).etag:
            return False
        await self._call(key, lambda: self._store.delete(key))
        return True

    async def delete_many(self, keys: Iterable[str]) -> list[str]:
        results = await self._gather_few(keys, self.delete)
        return [key for key, was_there in results.items() if was_there]

    async def etag(self, key: str) -> str:
        if not is_log_key(check_key(key)):
            return (await self._head(key)).etag
        segments = await self._find_segments(key)  # first: later merges are in the object
        return _join_etags((await self._head(key)).etag, segments)

    async def find_many_etags(self, keys: Iterable[str]) -> dict[str, str]:
        return await self._gather_few(keys, self.etag)

    async def append(self, key: str, data: bytes) -> None:
        """Append to an object; concurrent appends of this process are combined."""
        log = self._find_log(check_log_key(key))
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        log.pending.append((data, done))
        if log.is_idle:
            log.task = asyncio.create_task(self._write_log(key, log), context=Context())
        await done

    async def find_etags(self, prefix: str = "") -> dict[str, str]:
        check_prefix(prefix)
        objects, appends = await asyncio.gather(self._list(prefix), self._list(APPENDS + prefix))
        times = {key: (it["last_modified"], it["e_tag"] or "") for key, it in objects.items()}
        segments: dict[str, list[AppendSegment]] = {}
        for name, meta in appends.items():
            key, _, segment = name.removeprefix(APPENDS).rpartition("/")
            if (parsed := _parse_segment(segment)) is None:
                continue
            segments.setdefault(key, []).append(parsed)
            before, etag = times.get(key, (meta["last_modified"], ""))
            times[key] = max(before, meta["last_modified"]), etag
        order = sorted(times, key=lambda key: (times[key][0], key))
        return {key: _join_etags(times[key][1], segments.get(key, [])) for key in order}

    async def aclose(self) -> None:
        """Wait for pending appends and merges."""
        tasks = [log.task for log in self._logs.values() if log.task is not None]
        await asyncio.gather(*tasks)
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None

    async def merge(self, key: str) -> bool:
        """Merge the segments of an object into it. Returns whether any was merged."""
        segments = await self._find_segments(key)
        try:
            base = await self._get(key)
        except ObjectNotFound:
            base = _StoredObject()
        # a segment that is part of the data must be gone before the marks say nothing of it
        await self._delete_segments(key, [one for one in segments if _is_merged(one, base.marks)])
        fresh = _limit_writers([one for one in segments if not _is_merged(one, base.marks)])
        if not fresh:
            return False
        try:
            data = await self._join_segments(key, base._replace(marks={}), fresh)
            await self._put(key, data, base.etag, marks=_format_marks(fresh))
        except (ObjectChanged, ObjectNotFound):  # another writer merges
            return False
        await self._delete_segments(key, fresh)
        return True

    def _find_log(self, key: str) -> _Log:
        """Return the pending appends of an object; evict idle ones if there are too many."""
        if len(self._logs) >= _MOST_LOGS and key not in self._logs:
            self._logs = {key: log for key, log in self._logs.items() if not log.is_idle}
        return self._logs.setdefault(key, _Log())

    async def _write_log(self, key: str, log: _Log) -> None:
        """Write pending appends as segments until there are none."""
        batch: list[tuple[bytes, asyncio.Future[None]]] = []
        try:
            if log.unmerged is None:
                log.unmerged = await self._count_segments(key)
            while log.pending:
                batch, log.pending = log.pending, []
                error = (
                    await capture_result(self._write_segment(key, [data for data, _ in batch]))
                ).error
                _finish(batch, error)
                log.unmerged += error is None
                if log.unmerged >= MERGE_AFTER:
                    log.unmerged = 0
                    await self._merge_or_log(key)
        finally:  # also on cancellation, so that no caller waits forever
            batch, log.pending = [*batch, *log.pending], []
            _finish(batch, StorageFailed(f"The data to append to {key!r} was not written."))

    async def _write_segment(self, key: str, parts: Sequence[bytes]) -> None:
        await self._require_conditions()
        data = join_lines(key, parts)
        self._number += 1
        self._last_time = max(time.time_ns(), self._last_time + 1)
        ends_midline = is_lines_key(key) and not data.endswith(b"\n")
        segment = AppendSegment(self._last_time, self._writer, self._number, ends_midline)
        await self._put(f"{APPENDS}{key}/{segment}", data, None)

    async def _count_segments(self, key: str) -> int:
        """Return the number of unmerged segments of all processes."""
        try:
            return len(await self._find_segments(key))
        except CopilotError:  # the write reports the error
            return 0

    async def _merge_or_log(self, key: str) -> None:
        try:
            await self.merge(key)
        except CopilotError as error:
            logger.warning("Appended segments of %s are not merged yet: %s", key, error.message)

    async def _find_segments(self, key: str) -> list[AppendSegment]:
        folder = f"{APPENDS}{key}/"
        found = (await self._list(folder)).items()
        segments = (
            (_parse_segment(name.removeprefix(folder)), meta["size"]) for name, meta in found
        )
        return sorted(segment._replace(size=size) for segment, size in segments if segment)

    async def _join_segments(
        self,
        key: str,
        base: _StoredObject,
        segments: Iterable[AppendSegment],
        start: int = 0,
    ) -> bytes:
        """Return the bytes of an object with the given segments, from byte `start`."""
        position = base.size
        ends_midline = is_lines_key(key) and base.size > 0 and not base.data.endswith(b"\n")
        pieces = {"": (base.size - len(base.data), base.data)}
        for segment in segments:
            if _is_merged(segment, base.marks) or not segment.size:
                continue
            gap = b"\n" if ends_midline else b""
            name = f"{APPENDS}{key}/{segment}"
            ends_midline = segment.ends_midline
            if position + len(gap) + segment.size > start:
                pieces[name] = (position, gap)
            position += len(gap) + segment.size
        found = await self._gather_few([name for name in pieces if name], self._get)
        return b"".join(
            (data + found[name].data if name else data)[max(0, start - begin) :]
            for name, (begin, data) in pieces.items()
        )

    async def _delete_segments(self, key: str, segments: Iterable[AppendSegment]) -> None:
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

    async def _get(self, key: str, start: int = 0) -> _StoredObject:
        """Return an object without its segments, with its data from byte `start`.

        At least the last byte is read, which tells whether it ends in a line. Raises
        `ObjectChanged` if it is written between two requests.
        """

        def work() -> _StoredObject:
            options: GetOptions = {}
            if start:
                meta = self._store.head(key)
                if meta["size"]:
                    begin = min(start, meta["size"]) - 1
                    options = {"range": {"offset": begin}, "if_match": meta["e_tag"]}
            result = self._store.get(key, options=options)
            meta = result.meta
            marks = _parse_marks(result.attributes.get(_MARKS, ""))
            return _StoredObject(bytes(result.bytes()), meta["size"], meta["e_tag"] or "", marks)

        return await self._call(key, work)

    async def _head(self, key: str) -> _StoredObject:
        try:
            meta = await self._call(key, lambda: self._store.head(key))
        except ObjectNotFound:
            return _StoredObject()
        return _StoredObject(etag=meta["e_tag"] or "")

    async def _list(self, prefix: str) -> "dict[str, ObjectMeta]":
        """Return the metadata of the objects with a prefix, by key."""
        folder, _, _ = prefix.rpartition("/")
        own = prefix.startswith(APPENDS)
        metas = await self._call(prefix, lambda: self._store.list(folder or None).collect())
        return {
            meta["path"]: meta
            for meta in metas
            if meta["path"].startswith(prefix) and (own or not meta["path"].startswith(RESERVED))
        }

    async def _require_conditions(self) -> None:
        """Raise `StorageFailed` if the server ignores conditional writes; probed once."""
        if self._heeds_conditions is None:
            async with self._probing:
                if self._heeds_conditions is None:
                    self._heeds_conditions = await self._probe_conditions()
        if not self._heeds_conditions:
            raise self._refuse_server()

    async def _probe_conditions(self) -> bool:
        """Return whether the server supports `If-None-Match` and `If-Match` on writes."""
        key = f"{RESERVED}probes/{secrets.token_hex(8)}"
        await self._put(key, b"", None)
        ignored = 0
        for expected in ("", _NO_ETAG):
            try:
                await self._put(key, b"", expected)
            except ObjectChanged:
                continue
            ignored += 1
        await self._call(key, lambda: self._store.delete(key))
        return not ignored

    def _refuse_server(self) -> StorageFailed:
        return StorageFailed(
            f"The server of the bucket {self.bucket!r} ignores the conditions of writes.",
            hint="Use a server that knows If-Match and If-None-Match, as S3 does since 2024, "
            "or a directory (local:PATH).",
            public=_PUBLIC,
        )

    async def _gather_few(
        self, keys: Iterable[str], work: Callable[[str], Coroutine[Any, Any, T]]
    ) -> dict[str, T]:
        """Run a coroutine for each distinct key with limited concurrency."""

        async def do(key: str) -> T:
            async with slots:
                return await work(key)

        slots, keys = asyncio.Semaphore(_AT_ONCE), dict.fromkeys(keys)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {key: group.create_task(do(key)) for key in keys}
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return {key: task.result() for key, task in tasks.items()}

    async def _call(self, key: str, request: Callable[[], T]) -> T:
        """Send a request in a thread, and convert its errors.

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
        if code == "NotImplemented":  # the server does not support a condition
            return self._refuse_server()
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


def _finish(batch: Iterable[tuple[bytes, asyncio.Future[None]]], error: Any) -> None:
    """Resolve the futures of a batch of appends."""
    for _, done in batch:
        if done.done():  # its task was cancelled
            continue
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)


def _parse_segment(name: str) -> AppendSegment | None:
    """Parse the name of a segment; `None` for other objects."""
    if not (match := _SEGMENT.fullmatch(name)):
        return None
    moment, writer, number, midline = match.groups()
    return AppendSegment(int(moment, 16), writer, int(number, 16), bool(midline))


def _limit_writers(segments: Iterable[AppendSegment]) -> list[AppendSegment]:
    """Return the first segments, limited to the number of writers that marks can hold."""
    writers: set[str] = set()
    chosen: list[AppendSegment] = []
    for segment in segments:
        writers.add(segment.writer)
        if len(writers) > _MOST_WRITERS:
            break
        chosen.append(segment)
    return chosen


def _is_merged(segment: AppendSegment, marks: Mapping[str, int]) -> bool:
    return segment.number <= marks.get(segment.writer, 0)


def _format_marks(segments: Iterable[AppendSegment]) -> str:
    """Encode the merged segments as text: the last number of each writer."""
    marks: dict[str, int] = {}
    for segment in segments:
        marks[segment.writer] = max(segment.number, marks.get(segment.writer, 0))
    return ",".join(f"{writer}-{number:x}" for writer, number in marks.items())


def _parse_marks(text: str) -> dict[str, int]:
    pairs = (mark.split("-") for mark in text.split(",") if mark)
    return {writer: int(number, 16) for writer, number in pairs}


def _join_etags(etag: str, segments: Iterable[AppendSegment]) -> str:
    """Return the etag of an object with its segments."""
    names = ",".join(map(str, sorted(segments)))
    return f"{etag}+{hashlib.sha256(names.encode()).hexdigest()[:16]}" if names else etag
