"""Store the files of people below their conversations, and take them in in the background.

Below `common.User.ann/common.Conversation.t1/file.Upload.<hash>` are the pieces of a file, each a
`common.Chunk.<number>`; its bytes are at `uploads/<uri>` in the storage. The resource of a file
comes first, in the state `reading`: what ends half-way is completed by the next start, or
forgotten if the bytes had not arrived.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from copilot_runtime.concurrency import call, retrieve_exception
from copilot_runtime.errors import CopilotError, LimitExceeded
from copilot_runtime.jsonvalue import JsonValue, get_text
from copilot_runtime.knowledge.access import Access, AccessDenied, Actor
from copilot_runtime.knowledge.identifiers import Identifier, parse_identifier
from copilot_runtime.knowledge.ingestion.documents import (
    CSV,
    HTML,
    MARKDOWN,
    PDF,
    TEXT,
    UnreadableDocument,
    UnsupportedType,
    detect_media_type,
)
from copilot_runtime.knowledge.policies.ownership import find_owner
from copilot_runtime.knowledge.resources import Resource, VersionConflict
from copilot_runtime.knowledge.uploads.attachments import describe_size, hash_bytes, too_large
from copilot_runtime.knowledge.uploads.extraction import Extract, extract
from copilot_runtime.storage import ObjectNotFound

if TYPE_CHECKING:
    from copilot_runtime.knowledge.knowledge import Knowledge

logger = logging.getLogger(__name__)

T = TypeVar("T")

Scan: TypeAlias = Callable[[bytes, str], "str | Awaitable[str | None] | None"]
"""Called with a file and its name before anything of it is stored; returns why it is refused."""

State = Literal["reading", "searchable", "stored", "refused"]
"""`stored` is what has no text, such as a picture."""

UPLOAD = "file.Upload"
"""The type of a file that somebody has attached."""
CHUNK = "common.Chunk"

_PREFIX = "uploads/"
"""Where the bytes of files are in a storage."""
_WHOLE_TOKENS = 1500
"""A file of no more is read whole by a model; of others, so much is their beginning."""
_AT_ONCE = 2
"""Files that are read at the same time."""

_DOCUMENTS = {HTML: "HTML", PDF: "PDF", MARKDOWN: "Markdown", CSV: "table", TEXT: "text"}
_MEDIA = ("image/", "audio/", "video/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file that somebody has attached, and what became of it."""

    id: Identifier
    name: str
    state: State
    message: str = ""
    """Why it was refused, or what of it could not be taken in."""
    media_type: str = ""
    bytes: int = 0
    chunks: int = 0
    created: int = 0
    """When it came, in seconds since 1970."""
    first: int = 0
    """How many of its first chunks a model may read without a search."""

    @property
    def uri(self) -> str:
        return str(self.id)

    @property
    def is_short(self) -> bool:
        """Whether a model reads all of it."""
        return self.first == self.chunks

    def list_chunks(self) -> list[str]:
        """Return the URIs of its first chunks."""
        return [str(Identifier(CHUNK, str(at), self.uri)) for at in range(1, self.first + 1)]


@dataclass
class Job:
    """A file on its way. It ends with an upload; with none if it could not be stored."""

    upload: Upload
    step: str = "waiting"
    done: int = 0
    total: int = 0
    task: "asyncio.Task[Upload]" = field(init=False)

    def follow(self, step: str, done: int, total: int) -> None:
        self.step, self.done, self.total = step, done, total


class Uploads:
    """The files in the conversations of a `Knowledge`."""

    def __init__(self, knowledge: "Knowledge", scan: Scan | None = None) -> None:
        self._knowledge = knowledge
        self._settings = knowledge.settings
        self._scan = scan
        self._jobs: dict[str, Job] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def get(self, id: Identifier | str) -> Upload | None:
        """Return a file, or None without one."""
        found = await self._knowledge.resources.get([id])
        return decode_upload(found[0]) if found else None

    def add(
        self,
        data: bytes,
        name: str,
        conversation: Identifier,
        *,
        actor: Actor | None = None,
        digest: str = "",
    ) -> Job:
        """Begin to take in a file. The same one twice in a conversation is one.

        `actor` is on whose behalf: the policy must let it write there. `digest` is what
        `hash_bytes` returns, if the caller has it. Who waits for the task of the job by
        `asyncio.wait` may stop waiting without ending it.
        """
        upload = Upload(
            id=Identifier(UPLOAD, digest or hash_bytes(data), str(conversation)),
            name=name,
            state="reading",
            bytes=len(data),
            created=int(time.time()),
        )
        if (job := self._jobs.get(upload.uri)) is None:
            access = self._knowledge.access(actor, "write")
            job = self._start(upload, lambda job: self._take_in(job, data, access))
        return job

    async def list(self, conversation: Identifier | str) -> Sequence[Upload]:
        """Return the files in a conversation, or of all of a user."""
        found = await self._knowledge.resources.find_by_prefix(conversation)
        resources = await self._knowledge.resources.get(it for it in found if it.type == UPLOAD)
        return [decode_upload(it) for it in resources]

    async def forget(self, conversation: Identifier | str) -> int:
        """Delete the files in a conversation, and all that was made of them; return how many."""
        uri = str(conversation)
        jobs = [job.task for name, job in self._jobs.items() if name.startswith(f"{uri}/")]
        for task in jobs:
            task.cancel()
        if jobs:
            await asyncio.wait(jobs)
        knowledge = self._knowledge
        below = await knowledge.resources.find_by_prefix(uri)
        uploads = [it for it in below if it.type == UPLOAD]
        await knowledge.resources.delete_many(uploads)
        await knowledge.storage.delete_many(
            await knowledge.storage.find_by_prefix(f"{_PREFIX}{uri}/")
        )
        if uploads:
            await self._update_indexes()
        return len(uploads)

    async def forget_older(
        self, before: float, exists: Callable[[Identifier], Awaitable[bool]]
    ) -> int:
        """Delete the files that came before a time to conversations that are no more."""
        knowledge = self._knowledge
        found = await knowledge.resources.find_by_type(UPLOAD)
        uploads = [decode_upload(it) for it in await knowledge.resources.get(found)]
        latest: dict[str, int] = {}
        for upload in uploads:
            latest[upload.id.parent] = max(upload.created, latest.get(upload.id.parent, 0))
        gone = 0
        for uri, created in latest.items():
            if uri and created < before and not await exists(parse_identifier(uri)):
                gone += await self.forget(uri)
        return gone

    async def resume(self) -> None:
        """Begin to complete what a server that has ended could not; forget what has no bytes."""
        knowledge = self._knowledge
        found = await knowledge.resources.find_by_type(UPLOAD)
        for resource in await knowledge.resources.get(found):
            upload = decode_upload(resource)
            if upload.state != "reading" or upload.uri in self._jobs:
                continue
            try:
                data = await knowledge.storage.get(_PREFIX + upload.uri)
            except ObjectNotFound:
                await knowledge.resources.delete(upload.id)
                continue
            logger.info("The file %s was not read to its end: it is read again.", upload.uri)
            self._start(upload, lambda job, data=data: self._read(job, data))

    async def aclose(self) -> None:
        """End what is on its way. The next start completes it."""
        tasks = [job.task for job in self._jobs.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _start(self, upload: Upload, work: "Callable[[Job], Awaitable[Upload]]") -> Job:
        async def run() -> Upload:
            try:
                return await work(job)
            finally:
                self._jobs.pop(upload.uri, None)

        job = Job(upload)
        self._jobs[upload.uri] = job
        job.task = asyncio.create_task(run(), name=f"take in {upload.uri}")
        job.task.add_done_callback(retrieve_exception)
        return job

    async def _take_in(self, job: Job, data: bytes, access: Access) -> Upload:
        upload = job.upload
        if (before := await self.get(upload.id)) is not None and before.state != "reading":
            return before
        if len(data) > self._settings.upload_bytes:
            return _refuse(upload, too_large(self._settings.upload_bytes))
        try:
            upload = replace(upload, media_type=await call(check_content, data, upload.name))
            await self._check_with_scanner(data, upload.name)
        except (UnreadableDocument, LimitExceeded) as error:
            return _refuse(upload, _tell(error))
        owner = find_owner(upload.uri)
        prefix = owner.uri if owner else upload.id.parent
        lock = self._locks.setdefault(prefix, asyncio.Lock())
        async with lock:  # of two tabs, each counts what the other has stored
            if refusal := await self._find_excess(upload, prefix):
                return _refuse(upload, refusal)
            try:
                await _complete(self._store(upload, data, access))
            except AccessDenied:
                return _refuse(upload, "You may not add files to this conversation.")
        return await self._read(replace_upload(job, upload), data)

    async def _check_with_scanner(self, data: bytes, name: str) -> None:
        """Ask the scanner of the application. Raises `UnreadableDocument` with its reason."""
        if self._scan is None:
            return
        try:
            reason = await call(self._scan, data, name)
        except Exception as error:  # of the application: what was not looked at is not stored
            logger.exception("The scanner of files failed")
            raise UnreadableDocument("The file could not be checked.") from error
        if reason:
            raise UnreadableDocument(str(reason))

    async def _find_excess(self, upload: Upload, owner: str) -> str:
        """Return which limit a file would exceed; empty if none."""
        stored = [it for it in await self.list(owner) if it.uri != upload.uri]
        here = sum(it.id.parent == upload.id.parent for it in stored)
        if here >= (most := self._settings.upload_files):
            return f"There are {most} files in this conversation already."
        if sum(it.bytes for it in stored) + upload.bytes > (most := self._settings.upload_total):
            return (
                f"Your files would have more than {describe_size(most)}: delete old conversations."
            )
        return ""

    async def _store(self, upload: Upload, data: bytes, access: Access) -> None:
        await self._knowledge.resources.put(encode_upload(upload), access=access)
        await self._knowledge.storage.put(_PREFIX + upload.uri, data)

    async def _read(self, job: Job, data: bytes) -> Upload:
        """Take the text of a stored file in, and return the file as it is then."""
        upload = job.upload
        if upload.media_type not in _DOCUMENTS:
            upload = replace(upload, state="stored")
            return await _complete(self._finish(upload, []))
        try:
            async with self._slots:
                job.follow("read", 0, 0)
                found = await extract(data, upload.name)
        except (UnreadableDocument, LimitExceeded) as error:
            # the bytes go, and the reason stays, so that nobody tries again with each question
            await _complete(self._drop_bytes(upload))
            return await _complete(self._finish(_refuse(upload, _tell(error)), []))
        chunks = await call(make_chunks, upload, found)  # their tokens are counted
        message = "Only its beginning was taken in: it is too long." if found.is_cut else ""
        upload = replace(
            upload,
            state="searchable",
            message=message,
            chunks=len(chunks),
            first=_count_first(chunks),
        )
        job.follow("store", 0, len(chunks))
        job.upload = await _complete(self._finish(upload, chunks))
        await self._update_indexes(job)
        return job.upload

    async def _finish(self, upload: Upload, chunks: Sequence[Resource]) -> Upload:
        """Store what was read of a file, and return the file as it is then.

        Of one that another process has deleted meanwhile, nothing stays.
        """
        resources = self._knowledge.resources
        if before := await resources.get([upload.id]):
            await resources.put_many(chunks)  # first: what is searchable has all its chunks
            try:
                await resources.put(encode_upload(upload), expected=before[0].version)
            except VersionConflict:
                if after := await self.get(upload.id):  # another process has read it, too
                    return after
            else:
                return upload
            await resources.delete_many(chunk.id for chunk in chunks)
        await self._drop_bytes(upload)
        return _refuse(upload, "It was deleted while it was read.")

    async def _drop_bytes(self, upload: Upload) -> None:
        await self._knowledge.storage.delete(_PREFIX + upload.uri)

    async def _update_indexes(self, job: Job | None = None) -> None:
        """Bring the indexes up to date. What fails is logged: the next update does it."""
        try:
            await self._knowledge.update([], job.follow if job else None)
        except CopilotError as error:
            logger.warning("Files are stored, and not searchable yet: %s", error)


def check_content(data: bytes, name: str) -> str:
    """Return the type of a file by its content. Raises `UnreadableDocument` for what has no use."""
    if not data:
        raise UnreadableDocument("The file is empty.")
    media_type = detect_media_type(data, name)
    if media_type in _DOCUMENTS or media_type.startswith(_MEDIA):
        return media_type
    raise UnsupportedType(media_type)


def make_chunks(upload: Upload, found: Extract) -> list[Resource]:
    """Return the pieces of a file as resources."""
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
    """Return the resource of a file. It has no content: that is in its chunks."""
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
    return Resource(replace(upload.id, tokens=None), fields=fields)


def decode_upload(resource: Resource) -> Upload:
    """Return the file that a resource stands for."""
    fields: Mapping[str, Any] = resource.fields
    state = get_text(fields, "state")
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
    )


def replace_upload(job: Job, upload: Upload) -> Job:
    """Tell a job what is known of its file by now."""
    job.upload = upload
    return job


def _refuse(upload: Upload, message: str) -> Upload:
    return replace(upload, state="refused", message=message)


def _tell(error: CopilotError) -> str:
    return f"{error.message} {error.hint or ''}".strip()


def _count_first(chunks: Sequence[Resource]) -> int:
    """Return how many chunks a model may read without a search: one at least."""
    left = _WHOLE_TOKENS
    for number, chunk in enumerate(chunks):
        left -= chunk.id.tokens or 0
        if left < 0:
            return max(number, 1)
    return len(chunks)


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0


async def _complete(work: Awaitable[T]) -> T:
    """Await a write. Cancelled, it waits for its end first: nothing is written afterwards."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        retrieve_exception(task)
        raise
