"""Attachments of a chat: ingested before the answer, with their progress shown in the frontend."""

import asyncio
import base64
import logging
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any

from copilot_runtime.api.events import Activity
from copilot_runtime.api.messages import MediaPart, Message, TextMessage
from copilot_runtime.api.retrieval import Passage, PreparedMessages
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import CopilotError, Misuse
from copilot_runtime.extensions.knowledge.access import Actor, select
from copilot_runtime.extensions.knowledge.identifiers import Identifier, contains
from copilot_runtime.extensions.knowledge.passages import build_passage, cut_passages
from copilot_runtime.extensions.knowledge.policies import build_actor, conversation_identifier
from copilot_runtime.extensions.knowledge.policies.ownership import UPLOAD
from copilot_runtime.extensions.knowledge.retrieval import find_queries
from copilot_runtime.extensions.knowledge.uploads.attachments import (
    Attachment,
    Slot,
    describe_limit,
    find_attachments,
    find_question,
    hash_bytes,
    quote_name,
    replace_attachments,
)
from copilot_runtime.telemetry import find_current_span, trace_block
from copilot_runtime.telemetry.content import render_retrieval
from copilot_runtime.telemetry.genai import start_retrieval_span

if TYPE_CHECKING:
    from copilot_runtime.extensions.knowledge.knowledge import Knowledge
    from copilot_runtime.extensions.knowledge.uploads.uploads import Job, Upload

logger = logging.getLogger(__name__)

_SOURCE = "files"
"""The source name in spans of searches in uploads."""

_WITH_TEXT = ("document", "binary")

FILES = "files"
"""The `activity_type` of the progress of files."""

_PATIENCE = 30.0
"""Maximum seconds that an answer waits for its files; ingestion continues in the background."""
_INDEX_PATIENCE = 3.0
"""Seconds after which a file whose text is stored is read from its beginning, without a search:
indexes may be busy for long with other things."""
_TICK = 0.2
"""Seconds between two progress updates."""


@dataclass
class _File:
    """A file of a run, and its current state."""

    attachment: Attachment
    job: "Job | None" = None
    upload: "Upload | None" = None
    refusal: str = ""
    is_indexed: bool = True

    def settle(self, *, without_index: bool) -> None:
        """Adopt the result of the job if it is done, or if only the index is missing."""
        if self.job is None:
            return
        if not self.job.task.done():
            if without_index and self.job.upload.state == "searchable":
                self.upload, self.job, self.is_indexed = self.job.upload, None, False
            return
        job, self.job = self.job, None
        if job.task.cancelled():
            self.refusal = "The server is ending: send the file again."
        elif error := job.task.exception():
            is_ours = isinstance(error, CopilotError)
            self.refusal = error.public if is_ours and error.public else "It could not be stored."
        else:
            self.upload = job.task.result()

    @property
    def state(self) -> str:
        if self.refusal:
            return "refused"
        return self.upload.state if self.upload else "reading"

    @property
    def message(self) -> str:
        return self.refusal or (self.upload.message if self.upload else "")

    @property
    def is_withheld(self) -> bool:
        """Whether an agent gets a line instead of the file."""
        if self.attachment.uri and (self.upload is None or self.upload.state == "refused"):
            return True
        return self.upload is not None and self.upload.is_blocked

    def describe(self) -> Mapping[str, Any]:
        """Return the progress of the file for the frontend."""
        fields: dict[str, Any] = {"name": self.attachment.name, "state": self.state}
        if self.upload:
            fields |= {"id": self.upload.uri, "name": self.upload.name}
        if self.message:
            fields["message"] = self.message
        if self.job:
            fields |= {"step": self.job.step, "done": self.job.done, "total": self.job.total}
        return fields

    def write_line(self) -> str | None:
        """Return the line that replaces the file; `None` if the model gets the file itself."""
        name = self.attachment.write_name().removesuffix("]")
        match self.state:
            case "stored":
                return None
            case "refused":
                return f"{name}: it was not taken in. {self.message}]"
            case "searchable":
                note = f" {self.message}" if self.message else ""
                return f"{name}: see the passages of it.{note}]"
            case _:
                return f"{name}: it is still being read; ask again in a moment.]"


class ChatFiles:
    """Stores the files of a run, waits until they are searchable, and retrieves passages.

    A file with text is replaced by a line with its name, in what the model reads and nowhere else;
    pictures, audio and video stay, because the model looks at them itself.
    """

    def __init__(self, knowledge: "Knowledge") -> None:
        self._knowledge = knowledge

    async def read_files(self, run: RunInput) -> AsyncGenerator[Activity | PreparedMessages, None]:
        """Yield the progress of the files of a run, and finally their content for the model.

        Yields nothing for a run without files. Does not raise: the model gets a
        message about each file that cannot be ingested.
        """
        attachments = [*find_attachments(run.messages)]
        if not attachments:
            return
        if not _is_chat(run):
            # suggestions and the like come in threads of their own: nothing is stored for them
            named = [it for it in attachments if it.kind in _WITH_TEXT or it.uri]
            names = {it.slot: it.write_name() for it in named}
            yield PreparedMessages(messages=replace_attachments(run.messages, names))
            return
        actor = build_actor(run.user, run.thread_id, agent=run.agent_name)
        files = await self._open(attachments, run, actor)
        async with aclosing(_follow(files, run)) as steps:
            async for step in steps:
                yield step
        lines = {it.attachment.slot: it.write_line() for it in files}
        messages = await self._replace(run, files, lines)
        passages = await self._find_passages(run, actor, files, find_question(run.messages))
        yield PreparedMessages(messages=messages, passages=passages)

    def has_files(self, run: RunInput) -> bool:
        """Return whether a run has files for `store_files`."""
        return _is_chat(run) and any(True for _ in find_attachments(run.messages))

    async def store_files(self, run: RunInput) -> AsyncGenerator[Activity | PreparedMessages, None]:
        """Yield the progress of the files of a run, and finally their content for the agent.

        An agent gets files as they came, with the bytes of those that are stored here; but none
        that a scanner refuses.
        """
        actor = build_actor(run.user, run.thread_id, agent=run.agent_name)
        files = await self._open([*find_attachments(run.messages)], run, actor)
        async with aclosing(_follow(files, run)) as steps:
            async for step in steps:
                yield step
        lines = {it.attachment.slot: it.write_line() if it.is_withheld else None for it in files}
        yield PreparedMessages(messages=await self._replace(run, files, lines))

    async def _open(
        self, attachments: Sequence[Attachment], run: RunInput, actor: Actor
    ) -> list[_File]:
        """Return the files of a run, either stored or with the jobs that ingest them.

        Of a run that brings too many, the files of its latest questions are taken in.
        """
        settings, uploads = self._knowledge.settings, self._knowledge.uploads
        conversation = conversation_identifier(run.user, run.thread_id)
        contents = await call(_decode_all, attachments, settings.upload_bytes, str(conversation))
        uris = {it.uri for it in contents if it.uri}
        named = {it.attachment.uri for it in contents if it.attachment.uri}
        hidden = named.difference(await select(self._knowledge.access(actor), named))
        entries = await self._find_uploads(uris - hidden)
        complete = {uri: upload for uri, upload in entries.items() if upload.state != "reading"}
        digests: set[str] = set()
        files: dict[Slot, _File] = {}
        for content in sorted(
            contents, key=lambda it: (-it.attachment.slot[0], it.attachment.slot)
        ):
            file = files[content.attachment.slot] = _File(content.attachment)
            name, uri = content.attachment.name, content.uri
            if content.refusal:
                file.refusal = content.refusal
            elif content.attachment.uri and uri not in entries:
                file.refusal = "It is not among the files of this conversation: attach it again."
            elif upload := complete.get(uri) or uploads.find_refusal(uri, name):
                file.upload = upload
            elif content.attachment.uri:
                file.job = uploads.find_job(uri)
            elif content.digest not in digests and len(digests) >= settings.upload_files:
                file.refusal = f"More than {settings.upload_files} files came at once."
            else:
                digests.add(content.digest)
                file.job = uploads.add(
                    content.data,
                    name,
                    conversation,
                    actor=actor,
                    digest=content.digest,
                    thread=(run.user or "", run.thread_id),
                )
        return [files[it.slot] for it in attachments]

    async def _find_uploads(self, uris: Collection[str]) -> "Mapping[str, Upload]":
        try:
            return await self._knowledge.uploads.get_many(uris)
        except CopilotError as error:  # storing then reports the error for each file
            logger.warning("Which files are stored cannot be read: %s", error)
            return {}

    async def _replace(
        self, run: RunInput, files: Sequence[_File], lines: Mapping[Slot, str | None]
    ) -> Sequence[Message]:
        """Return messages with files replaced by lines, and stored files by their bytes."""
        contents: dict[Slot, str | MediaPart] = {}
        for file in files:
            slot = file.attachment.slot
            if (line := lines[slot]) is not None:
                contents[slot] = line
            elif file.attachment.uri and file.upload:
                contents[slot] = await self._load(file.upload, run, slot)
        return replace_attachments(run.messages, contents)

    async def _load(self, upload: "Upload", run: RunInput, slot: Slot) -> str | MediaPart:
        """Return a stored file as a media part, or as a line if its bytes are missing."""
        message = run.messages[slot[0]]
        assert isinstance(message, TextMessage)
        part = message.parts[slot[1]]
        assert isinstance(part, MediaPart)
        try:
            data = await self._knowledge.uploads.read(upload)
        except CopilotError as error:
            logger.warning("The file %s cannot be read: %s", upload.uri, error)
            data = None
        if data is None:
            return f"[Attached file {quote_name(upload.name)}: it cannot be read now.]"
        value = (await call(base64.b64encode, data)).decode()
        mime_type = upload.media_type or part.mime_type
        return replace(part, source="data", value=value, mime_type=mime_type)

    async def _find_passages(
        self, run: RunInput, actor: Actor, files: Sequence[_File], question: int
    ) -> Sequence[Passage]:
        """Return newly attached short files in full, and relevant passages of the others."""
        passages: dict[str, Passage] = {}
        searchable = {
            it.upload.uri: (it.upload, it.attachment.slot[0] == question or not it.is_indexed)
            for it in files
            if it.upload and it.upload.chunks
        }
        uploads = [upload for upload, _ in searchable.values()]
        queries = find_queries(run.messages)
        fresh = [upload for upload, is_fresh in searchable.values() if is_fresh]
        matches: Sequence[Passage] = ()
        if queries and any(upload not in fresh or not upload.is_short for upload in uploads):
            matches = await self._search(queries, actor, uploads[0].id.parent)
        for upload in fresh:
            if upload.is_short or not any(contains(upload.uri, it.id) for it in matches):
                found = await self._read(upload.list_chunks(), actor)
                passages.update((it.id, it) for it in found)
        passages.update((it.id, it) for it in matches)
        return cut_passages([*passages.values()], self._knowledge.settings.upload_tokens)

    async def _search(self, queries: Sequence[str], actor: Actor, prefix: str) -> list[Passage]:
        limit = self._knowledge.settings.retrieval_limit
        try:
            with trace_block(
                start_retrieval_span(find_current_span(), _SOURCE, top_k=limit)
            ) as span:
                found = await self._knowledge.search(
                    queries, actor=actor, prefix=prefix, limit=limit, threshold=0.05
                )
                if span.keeps_content:
                    span.set_content(render_retrieval("\n".join(queries), found))
                return found
        except CopilotError:  # the embedder is out of reach, or the policy has changed
            return []

    async def _read(self, uris: Sequence[str], actor: Actor) -> list[Passage]:
        try:
            resources = await self._knowledge.resources.get(
                uris, access=self._knowledge.access(actor)
            )
        except CopilotError:  # the policy denies it, or the storage fails
            return []
        return [build_passage(it, self._knowledge.link) for it in resources]


@dataclass(frozen=True, slots=True)
class _Content:
    """The decoded bytes of an attachment with their hash, or the error."""

    attachment: Attachment
    uri: str = ""
    data: bytes = b""
    digest: str = ""
    refusal: str = ""


def _is_chat(run: RunInput) -> bool:
    return run.request_type == "Chat" and run.parameters.tool_choice != "function"


def _decode_all(attachments: Sequence[Attachment], most: int, conversation: str) -> list[_Content]:
    return [_decode(attachment, most, conversation) for attachment in attachments]


def _decode(attachment: Attachment, most: int, conversation: str) -> _Content:
    if attachment.uri:
        return _Content(attachment, attachment.uri)
    if attachment.size > most + 4:
        return _Content(attachment, refusal=describe_limit(most))
    try:
        data = attachment.decode()
    except Misuse as error:
        return _Content(attachment, refusal=error.message)
    digest = hash_bytes(data)
    return _Content(attachment, str(Identifier(UPLOAD, digest, conversation)), data, digest)


async def _follow(files: Sequence[_File], run: RunInput) -> AsyncGenerator[Activity, None]:
    """Yield the progress of files until they are searchable or time out.

    A page is shown those of the last question, unless the run goes on with an answer to it.
    """
    question = find_question(run.messages)
    fresh = [file for file in files if file.attachment.slot[0] == question]
    if question < len(run.messages) - 1:
        fresh = []
    latest: Any = None
    began = monotonic()
    while True:
        for file in files:
            file.settle(without_index=monotonic() - began > _INDEX_PATIENCE)
        state = [file.describe() for file in fresh]
        if state != latest and fresh:
            latest = state
            yield _describe(run.messages[question].id, state)
        tasks = [file.job.task for file in files if file.job]
        if not tasks or monotonic() - began > _PATIENCE:
            return
        await asyncio.wait(tasks, timeout=_TICK, return_when=asyncio.FIRST_COMPLETED)


def _describe(question: str, files: Sequence[Mapping[str, Any]]) -> Activity:
    return Activity(
        message_id=f"files-{question}", activity_type=FILES, content={"files": [*files]}
    )
