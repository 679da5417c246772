"""Store the uploads of users below their conversations, and ingest them in the background.

Below `common.User.ann/common.Conversation.t1/file.Upload.<hash>` are the pieces of a file, each a
`common.Chunk.<number>`; its bytes are at `uploads/<uri>` in the storage. The resource of a file
comes first, in the state `reading`: what ends half-way is completed by the next start, or
forgotten if the bytes had not arrived.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from copilot_runtime.api.hooks import call as call_hook
from copilot_runtime.base.concurrency import call, retrieve_exception
from copilot_runtime.base.errors import CopilotError, Interrupted, LimitExceeded
from copilot_runtime.base.formatting import format_size
from copilot_runtime.base.jsonvalue import JsonValue, get_object, get_text
from copilot_runtime.extensions.knowledge.access import Access, AccessDenied, Actor
from copilot_runtime.extensions.knowledge.identifiers import CHUNK, Identifier, parse_identifier
from copilot_runtime.extensions.knowledge.ingestion.chunks import Chunk
from copilot_runtime.extensions.knowledge.ingestion.documents import (
    CSV,
    DOCX,
    HTML,
    MARKDOWN,
    PDF,
    PPTX,
    TEXT,
    XLSX,
    UnreadableDocument,
    UnsupportedType,
    detect_media_type,
    read_document,
)
from copilot_runtime.extensions.knowledge.policies.ownership import (
    UPLOAD,
    build_prefix,
    find_owner,
    is_shortened,
)
from copilot_runtime.extensions.knowledge.resources import PREFIX, Resource, VersionConflict
from copilot_runtime.extensions.knowledge.spans import (
    describe_upload,
    start_ingest_step_span,
    start_upload_span,
)
from copilot_runtime.extensions.knowledge.uploads.attachments import (
    describe_limit,
    hash_bytes,
)
from copilot_runtime.extensions.knowledge.uploads.queue import FairQueue, TooManyFiles
from copilot_runtime.storage import ObjectNotFound
from copilot_runtime.telemetry import Span, find_current_span, trace_block

if TYPE_CHECKING:
    from copilot_runtime.extensions.knowledge.knowledge import Knowledge


logger = logging.getLogger(__name__)

T = TypeVar("T")

Scan: TypeAlias = Callable[[bytes, str], "str | Awaitable[str | None] | None"]
"""Callback with a file and its name before it is stored; returns the reason of a refusal."""

UploadState = Literal["reading", "searchable", "stored", "refused"]
"""`stored` is a file without text, such as an image."""


_BYTES = "uploads/"
"""The storage prefix of the bytes of uploads."""
_WHOLE_TOKENS = 1500
"""Maximum number of tokens that a model reads of a file without a search."""
_MOST_JOBS = 20
"""Maximum number of pending uploads of one user."""
_ARRIVAL = 600
"""Seconds after which missing bytes of a file will not arrive any more."""
_MOST_REFUSALS = 1000
"""Maximum number of cached refusals, which avoid a new check with each question."""

_MOST_CHUNKS = 2000
"""Maximum number of chunks of a file: about 800,000 tokens."""

_DOCUMENTS = (HTML, PDF, MARKDOWN, CSV, TEXT, DOCX, XLSX, PPTX)
_NOT_CHECKED = "The file could not be checked."
_DELETED = "It was deleted while it was read."
_MEDIA = ("image/", "audio/", "video/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """An uploaded file and its state."""

    id: Identifier
    name: str
    state: UploadState
    message: str = ""
    """The reason of a refusal, or of incomplete ingestion."""
    media_type: str = ""
    bytes: int = 0
    chunks: int = 0
    created: int = 0
    """Time of the upload, in seconds since 1970."""
    first: int = 0
    """Number of its first chunks that a model may read without a search."""
    is_blocked: bool = False
    """Whether the scanner has refused it or failed; agents do not get it either."""
    thread: tuple[str, str] | None = None
    """User and thread identifier, if known; the URI may contain only their digests."""

    @property
    def uri(self) -> str:
        return str(self.id)

    @property
    def is_short(self) -> bool:
        """Whether a model reads the whole file."""
        return self.first == self.chunks

    def find_thread(self) -> tuple[str, str] | None:
        """Return user and thread identifier; `None` if only digests are known."""
        if self.thread is not None:
            return self.thread
        owner = find_owner(self.uri)
        user = owner.name if owner and owner.kind == "user" else ""
        thread = user, parse_identifier(self.id.parent).name
        return None if any(map(is_shortened, thread)) else thread

    def list_chunks(self) -> list[str]:
        """Return the URIs of the chunks that a model may read without a search."""
        return [str(Identifier(CHUNK, str(at), self.uri)) for at in range(1, self.first + 1)]


@dataclass(frozen=True, slots=True)
class Extract:
    """The text of a file as chunks."""

    chunks: list[Chunk]
    warnings: Sequence[str] = ()
    """Parts of the file that are not in it, and guesses."""


@dataclass
class Job:
    """A pending upload. It results in an upload, or in an error if it could not be stored."""

    upload: Upload
    data: bytes = b""
    """The bytes until they are stored; waiting files are not kept in memory."""
    is_excess: bool = False
    """Whether its owner has too many pending uploads."""
    step: str = "waiting"
    done: int = 0
    total: int = 0
    task: "asyncio.Task[Upload]" = field(init=False)
    is_stored: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the file is stored or has failed."""

    @property
    def owner(self) -> str:
        """The user. All anonymous users count as one, since anyone can create threads."""
        owner = find_owner(self.upload.uri)
        return owner.name if owner and owner.kind == "user" else ""

    async def wait_for_storage(self) -> Upload:
        """Return the upload once it is stored or refused. Raises the errors of storing."""
        await self.is_stored.wait()
        if not self.task.done():
            return self.upload
        if self.task.cancelled():
            raise Interrupted("The file was not stored: send it again.")
        return self.task.result()

    def follow(self, step: str, done: int, total: int) -> None:
        self.step, self.done, self.total = step, done, total


class Uploads:
    """The files in the conversations of a `Knowledge`."""

    def __init__(self, knowledge: "Knowledge", scan: Scan | None = None) -> None:
        self._knowledge = knowledge
        self._settings = knowledge.settings
        self._scan = scan
        self._jobs: dict[str, Job] = {}
        self._refusals: OrderedDict[tuple[str, str], Upload] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._queue = FairQueue()
        self._next_look: asyncio.Task[None] | None = None
        """The task that checks again for uploads that were incomplete at startup."""

    async def get(self, id: Identifier | str) -> Upload | None:
        """Return an upload, or `None` if it does not exist."""
        return (await self.get_many([id])).get(str(id))

    async def get_many(self, ids: Iterable[Identifier | str]) -> Mapping[str, Upload]:
        """Return the existing uploads by URI."""
        found = await self._knowledge.resources.get(ids)
        return {it.uri: decode_upload(it) for it in found}

    async def read(self, upload: Upload) -> bytes | None:
        """Return the original bytes of an upload; `None` if they are not stored."""
        try:
            return await self._knowledge.storage.get(_BYTES + upload.uri)
        except ObjectNotFound:
            return None

    def find_job(self, uri: str) -> Job | None:
        """Return the running job of an upload in this process, or `None`."""
        return self._jobs.get(uri)

    def find_refusal(self, uri: str, name: str) -> Upload | None:
        """Return a cached refusal of a file, or `None`."""
        return self._refusals.get((uri, name))

    def add(
        self,
        data: bytes,
        name: str,
        conversation: Identifier,
        *,
        actor: Actor | None = None,
        digest: str = "",
        thread: tuple[str, str] | None = None,
    ) -> Job:
        """Start the ingestion of a file. Equal files of a conversation are one upload.

        `actor` is on whose behalf: the policy must let it write there. `digest` is what
        `hash_bytes` returns, if the caller has it, and `thread` the user and the id of the thread
        that the conversation is. Who waits for the task of the job by `asyncio.wait` may stop
        waiting without ending it.
        """
        upload = Upload(
            id=Identifier(UPLOAD, digest or hash_bytes(data), str(conversation)),
            name=name,
            state="reading",
            bytes=len(data),
            created=int(time.time()),
            thread=thread,
        )
        if (job := self._jobs.get(upload.uri)) is None:
            access = self._knowledge.access(actor, "write")
            job = Job(upload, data)
            others = [it for it in self._jobs.values() if not it.is_excess]
            most = max(_MOST_JOBS, self._settings.upload_files)  # one question may bring as many
            job.is_excess = sum(it.owner == job.owner for it in others) >= most
            self._start(job, lambda job: self._take_in(job, access))
        return job

    async def list(self, conversation: Identifier | str) -> Sequence[Upload]:
        """Return the uploads of a conversation or of a user."""
        return [*(await self.get_many(await self._find_below(conversation))).values()]

    async def count_bytes(self, user: str, *, is_prefix: bool = False) -> int:
        """Return the size of a user's files, or of those of all users with a common prefix."""
        prefix = _BYTES + build_prefix(user, is_prefix=is_prefix)
        keys = await self._knowledge.storage.find_by_prefix(prefix)
        stored = await self.get_many(key.removeprefix(_BYTES) for key in keys)
        return sum(upload.bytes for upload in stored.values())

    async def forget(self, conversation: Identifier | str) -> int:
        """Delete the uploads of a conversation with their chunks; return their number."""
        uri = str(conversation)
        jobs = [job.task for name, job in self._jobs.items() if name.startswith(f"{uri}/")]
        for task in jobs:
            task.cancel()
        if jobs:
            await asyncio.wait(jobs)
        for key in [key for key in self._refusals if key[0].startswith(f"{uri}/")]:
            del self._refusals[key]
        knowledge = self._knowledge
        uploads = await self._find_below(uri)
        removed = await knowledge.resources.delete_many(uploads) if uploads else []
        await knowledge.storage.delete_many(
            await knowledge.storage.find_by_prefix(f"{_BYTES}{uri}/")
        )
        if removed:
            await knowledge.remove_from_indexes(map(str, removed))
        return len(uploads)

    async def forget_older(self, before: float, exists: Callable[[Upload], Awaitable[bool]]) -> int:
        """Delete uploads older than a time whose conversations are gone; return their number."""
        knowledge = self._knowledge
        found = await knowledge.resources.find_by_type(UPLOAD)
        latest: dict[str, Upload] = {}
        for upload in (await self.get_many(found)).values():
            other = latest.setdefault(upload.id.parent, upload)
            if upload.created > other.created:
                latest[upload.id.parent] = upload
        gone = 0
        for uri, upload in latest.items():
            if uri and upload.created < before and not await exists(upload):
                gone += await self.forget(uri)
        return gone

    async def resume(self) -> None:
        """Resume the incomplete uploads of stopped servers; delete those without bytes.

        Bytes that another server may be storing get `_ARRIVAL` seconds, and then another look.
        """
        knowledge = self._knowledge
        is_expecting = False
        if not knowledge.resources.is_reconciled:  # a killed process may not have recorded its file
            await knowledge.resources.reconcile()
        found = await knowledge.resources.find_by_type(UPLOAD)
        for upload in (await self.get_many(found)).values():
            if upload.state != "reading" or upload.uri in self._jobs:
                continue
            if not await knowledge.storage.exists(_BYTES + upload.uri):
                if upload.created < time.time() - _ARRIVAL:
                    await knowledge.resources.delete(upload.id)
                else:
                    is_expecting = True
                continue
            logger.info("The file %s was not read to its end: it is read again.", upload.uri)
            self._start(Job(upload), self._read)
        if is_expecting and self._next_look is None:
            self._next_look = asyncio.create_task(self._look_again(), name="look for files")

    async def _look_again(self) -> None:
        await asyncio.sleep(_ARRIVAL + 1)  # times of files have whole seconds
        self._next_look = None
        try:
            await self.resume()
        except CopilotError as error:
            logger.warning("Files that did not arrive were not looked for: %s", error)

    async def aclose(self) -> None:
        """Cancel pending uploads. The next start resumes them."""
        tasks: list[asyncio.Task[Any]] = [job.task for job in self._jobs.values()]
        if self._next_look is not None:
            tasks.append(self._next_look)
            self._next_look = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _start(self, job: Job, work: "Callable[[Job], Awaitable[Upload]]") -> None:
        uri = job.upload.uri

        async def run() -> Upload:
            try:
                with trace_block(self._start_span(job.upload)) as span:
                    upload = await work(job)
                    _describe(span, upload)
                    return upload
            finally:
                self._jobs.pop(uri, None)
                job.is_stored.set()

        self._jobs[uri] = job
        job.task = asyncio.create_task(run(), name=f"take in {uri}")
        job.task.add_done_callback(retrieve_exception)

    def _start_span(self, upload: Upload) -> Span:
        _, thread_id = upload.thread or ("", "")
        telemetry, size = self._knowledge.telemetry, upload.bytes
        return start_upload_span(telemetry, name=upload.name, size=size, thread_id=thread_id)

    async def _find_below(self, uri: Identifier | str) -> "list[str]":
        """Return the URIs of the uploads below a conversation or a user, from the storage.

        The catalog would have to be scanned with the entries of all users.
        """
        keys = await self._knowledge.storage.find_by_prefix(f"{PREFIX}{uri}/")
        uris = [key.removeprefix(PREFIX).removesuffix(".json") for key in keys]
        return [uri for uri in uris if uri.rpartition("/")[2].startswith(f"{UPLOAD}.")]

    async def _take_in(self, job: Job, access: Access) -> Upload:
        try:
            upload = job.upload = await self._receive(job, access)
        finally:
            job.data = b""
        if upload.state != "reading":
            return upload
        job.is_stored.set()
        return await self._read(job)

    async def _receive(self, job: Job, access: Access) -> Upload:
        """Check and store a file; return the upload, to be read or refused.

        Raises `TooManyFiles`: that is no fault of the file.
        """
        upload = job.upload
        if not upload.uri.isprintable():
            return _refuse(upload, "The id of this conversation has characters that are no text.")
        if (before := await self.get(upload.id)) is not None and before.state != "reading":
            return before
        if (before := self.find_refusal(upload.uri, upload.name)) is not None:
            return before
        if len(job.data) > self._settings.upload_bytes:
            return _refuse(upload, describe_limit(self._settings.upload_bytes))
        if job.is_excess:
            raise TooManyFiles("Too many files of yours are read now: send it again later.")
        try:
            upload = replace(upload, media_type=await call(check_content, job.data, upload.name))
        except (UnreadableDocument, LimitExceeded) as error:
            return self._remember(_refuse(upload, _format_error(error)))
        if reason := await self._scan_data(job.data, upload.name):
            return self._remember(replace(_refuse(upload, reason), is_blocked=True))
        owner = find_owner(upload.uri)
        prefix = owner.uri if owner else upload.id.parent
        lock = self._locks.setdefault(prefix, asyncio.Lock())
        async with lock:  # of two tabs, each counts what the other has stored
            if refusal := await self._find_excess(upload, prefix):
                return _refuse(upload, refusal)
            try:
                await _complete(self._store(upload, job.data, access))
            except AccessDenied:
                return _refuse(upload, "You may not add files to this conversation.")
        return upload

    async def _scan_data(self, data: bytes, name: str) -> str:
        """Run the scanner of the application; return its reason of refusal, or an empty string."""
        if self._scan is None:
            return ""
        try:
            reason = await call_hook(
                self._scan, data, name, name="scan", parent=find_current_span()
            )
        except Exception:  # of the application: unscanned files are not stored
            logger.exception("The scanner of files failed")
            return _NOT_CHECKED
        return str(reason) if reason else ""

    def _remember(self, refused: Upload) -> Upload:
        """Cache a refusal, unless the next attempt may succeed."""
        if refused.message != _NOT_CHECKED:
            self._refusals[refused.uri, refused.name] = refused
            if len(self._refusals) > _MOST_REFUSALS:
                self._refusals.popitem(last=False)
        return refused

    async def _find_excess(self, upload: Upload, owner: str) -> str:
        """Return a message about the limit that a file would exceed, or an empty string."""
        keys = await self._knowledge.storage.find_by_prefix(f"{_BYTES}{owner}/")
        uris = [uri for key in keys if (uri := key.removeprefix(_BYTES)) != upload.uri]
        stored = [*(await self.get_many(uris)).values()]
        here = sum(it.id.parent == upload.id.parent for it in stored)
        if here >= (most := self._settings.upload_files):
            return f"There are {most} files in this conversation already."
        if sum(it.bytes for it in stored) + upload.bytes > (most := self._settings.upload_total):
            return f"Your files would have more than {format_size(most)}: delete old conversations."
        return ""

    async def _store(self, upload: Upload, data: bytes, access: Access) -> None:
        await self._knowledge.resources.put(encode_upload(upload), access=access)
        await self._knowledge.storage.put(_BYTES + upload.uri, data)

    async def _read(self, job: Job) -> Upload:
        """Ingest the text of a stored file, and return the updated upload."""
        upload = job.upload
        if upload.media_type not in _DOCUMENTS:
            upload = replace(upload, state="stored")
            return await _complete(self._finish(upload, []))
        try:
            async with self._queue.slot(job.owner, upload.bytes):
                job.follow("read", 0, 0)
                with trace_block(start_ingest_step_span("read")):
                    if (data := await self.read(upload)) is None:
                        return _refuse(upload, _DELETED)
                    found = await extract(data, upload.name)
                    del data
        except (UnreadableDocument, LimitExceeded) as error:
            # keep the reason without the bytes, which avoids a new attempt with each question
            await _complete(self._drop_bytes(upload))
            return await _complete(self._finish(_refuse(upload, _format_error(error)), []))
        chunks = await call(make_chunks, upload, found)  # their tokens are counted
        upload = replace(
            upload,
            state="searchable",
            message=" ".join(found.warnings),
            chunks=len(chunks),
            first=_count_first(chunks),
        )
        job.follow("store", 0, len(chunks))
        with trace_block(start_ingest_step_span("store")):
            job.upload = await _complete(self._finish(upload, chunks))
        if job.upload.state == "searchable":
            await self._add_to_indexes([upload.uri, *(it.uri for it in chunks)], job)
        return job.upload

    async def _finish(self, upload: Upload, chunks: Sequence[Resource]) -> Upload:
        """Store the chunks of a file, and return the updated upload.

        If another process has deleted the upload meanwhile, its chunks are deleted, too.
        """
        resources = self._knowledge.resources
        if before := await resources.get([upload.id]):
            await resources.put_many(chunks)  # first: a searchable file has all of its chunks
            try:
                await resources.put(encode_upload(upload), expected=before[0].version)
            except VersionConflict:
                if after := await self.get(upload.id):  # another process has read it, too
                    return after
            else:
                return upload
            await resources.delete_many(chunk.id for chunk in chunks)
        await self._drop_bytes(upload)
        return _refuse(upload, _DELETED)

    async def _drop_bytes(self, upload: Upload) -> None:
        await self._knowledge.storage.delete(_BYTES + upload.uri)

    async def _add_to_indexes(self, uris: "list[str]", job: Job) -> None:
        """Add a file to the indexes. Failures are logged, and repeated by the next update."""
        try:
            await self._knowledge.embed_resources(uris, job.follow)
        except CopilotError as error:
            logger.warning("A file is stored, and not searchable yet: %s", error)


def _describe(span: Span, upload: Upload) -> None:
    describe_upload(
        span,
        state=upload.state,
        media_type=upload.media_type,
        chunks=upload.chunks,
        message=upload.message,
    )


def check_content(data: bytes, name: str) -> str:
    """Return the media type of a file by its content. Raises `UnreadableDocument`."""
    if not data:
        raise UnreadableDocument("The file is empty.")
    media_type = detect_media_type(data, name)
    if media_type in _DOCUMENTS or media_type.startswith(_MEDIA):
        return media_type
    raise UnsupportedType(media_type)


async def extract(data: bytes, name: str) -> Extract:
    """Return the text of a file. Raises `UnreadableDocument` or `LimitExceeded`.

    It is read in a process of its own, with limits of time and memory.
    """
    document = await call(read_document, data, name, sandboxed=True)
    if not document.chunks:
        raise UnreadableDocument("There is no text in the file.")
    warnings = document.warnings
    if len(document.chunks) > _MOST_CHUNKS:
        warnings = [*warnings, "Only its beginning was taken in: it is too long."]
    return Extract(document.chunks[:_MOST_CHUNKS], warnings)


def make_chunks(upload: Upload, found: Extract) -> list[Resource]:
    """Return the chunks of a file as resources."""
    fields: dict[str, JsonValue] = {"title": upload.name, "source": upload.name}
    return [
        Resource(
            Identifier(CHUNK, str(number), upload.uri),
            chunk.text,
            fields={**fields, "place": place} if (place := chunk.place.encode()) else fields,
        )
        for number, chunk in enumerate(found.chunks, 1)
    ]


def encode_upload(upload: Upload) -> Resource:
    """Return the resource of an upload, whose text is in its chunks."""
    fields: Mapping[str, JsonValue] = {
        "title": upload.name,
        "source": upload.name,
        "state": upload.state,
        "media_type": upload.media_type,
        "bytes": upload.bytes,
        "chunks": upload.chunks,
        "first": upload.first,
        "created": upload.created,
    }
    if upload.message:
        fields = {**fields, "message": upload.message}
    if upload.thread:
        user, name = upload.thread
        fields = {**fields, "thread": {"user": user, "id": name}}
    return Resource(replace(upload.id, tokens=None), fields=fields)


def decode_upload(resource: Resource) -> Upload:
    """Decode an upload from its resource."""
    fields: Mapping[str, Any] = resource.fields
    state, thread = get_text(fields, "state"), get_object(fields, "thread")
    return Upload(
        id=resource.id,
        name=get_text(fields, "title") or resource.id.name,
        state=state if state in ("searchable", "stored", "refused") else "reading",
        message=get_text(fields, "message"),
        media_type=get_text(fields, "media_type"),
        bytes=_count(fields.get("bytes")),
        chunks=_count(fields.get("chunks")),
        first=_count(fields.get("first")),
        created=_count(fields.get("created")),
        thread=(get_text(thread, "user"), get_text(thread, "id")) if thread else None,
    )


def _refuse(upload: Upload, message: str) -> Upload:
    return replace(upload, state="refused", message=message)


def _format_error(error: CopilotError) -> str:
    return f"{error.message} {error.hint or ''}".strip()


def _count_first(chunks: Sequence[Resource]) -> int:
    """Return the number of chunks that a model may read without a search, at least one."""
    left = _WHOLE_TOKENS
    for number, chunk in enumerate(chunks):
        left -= chunk.id.tokens or 0
        if left < 0:
            return max(number, 1)
    return len(chunks)


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0


async def _complete(work: Awaitable[T]) -> T:
    """Await a write; on cancellation, wait for its end before raising."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        retrieve_exception(task)
        raise
