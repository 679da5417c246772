"""Files in a chat: taken in before the answer, with their progress on the page."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from copilot_runtime.concurrency import call
from copilot_runtime.errors import CopilotError, Misuse
from copilot_runtime.events import Activity
from copilot_runtime.interfaces import Passage, Reading, RunInput
from copilot_runtime.knowledge.access import AccessDenied, Actor
from copilot_runtime.knowledge.identifiers import contains
from copilot_runtime.knowledge.passages import build_passage, cut_passages
from copilot_runtime.knowledge.policies import build_actor, conversation_identifier
from copilot_runtime.knowledge.retrieval import find_queries
from copilot_runtime.knowledge.uploads.attachments import (
    Attachment,
    Slot,
    find_attachments,
    find_question,
    hash_bytes,
    replace_attachments,
    too_large,
)

if TYPE_CHECKING:
    from copilot_runtime.knowledge.knowledge import Knowledge
    from copilot_runtime.knowledge.uploads.uploads import Job, Upload

_WITH_TEXT = ("document", "binary")

FILES = "files"
"""The `activity_type` of the progress of files."""

_PATIENCE = 30.0
"""Seconds that an answer waits for its files. They are taken in further in the background."""
_INDEX_PATIENCE = 3.0
"""Seconds after which a file whose text is stored is read from its beginning, without a search:
indexes may be busy for long with other things."""
_TICK = 0.2
"""Seconds between two looks at the progress."""


@dataclass
class _File:
    """A file of a run, and what became of it so far."""

    attachment: Attachment
    job: "Job | None" = None
    upload: "Upload | None" = None
    refusal: str = ""
    is_indexed: bool = True

    def settle(self, *, without_index: bool) -> None:
        """Take over what became of the job, if it has ended, or lacks no more than the index."""
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

    def describe(self) -> Mapping[str, Any]:
        """Return it as the page is shown it."""
        fields: dict[str, Any] = {"name": self.attachment.name, "state": self.state}
        if self.upload:
            fields |= {"id": self.upload.uri, "name": self.upload.name}
        if self.message:
            fields["message"] = self.message
        if self.job:
            fields |= {"step": self.job.step, "done": self.job.done, "total": self.job.total}
        return fields

    def write_line(self) -> str | None:
        """Return what a model reads in its place; None if the model gets the file itself."""
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
    """Stores the files of a run, waits until they are searchable, and finds what is asked for.

    A file with text is replaced by a line with its name, in what the model reads and nowhere else;
    pictures, audio and video stay, because the model looks at them itself.
    """

    def __init__(self, knowledge: "Knowledge") -> None:
        self._knowledge = knowledge

    async def read_files(self, run: RunInput) -> AsyncGenerator[Activity | Reading, None]:
        """Yield the progress of the files of a run, and at last what a model reads of them.

        Yields nothing for a run without files. It raises nothing: a file that cannot be taken in
        is one that the model is told about.
        """
        attachments = [*find_attachments(run.messages)]
        if not attachments:
            return
        if run.request_type != "Chat" or run.parameters.tool_choice == "function":
            # suggestions and the like come in threads of their own: nothing is stored for them
            names = {it.slot: it.write_name() for it in attachments if it.kind in _WITH_TEXT}
            yield Reading(messages=replace_attachments(run.messages, names))
            return
        actor = build_actor(run.user, run.thread_id, agent=run.agent_name)
        files = [await self._begin(it, run, actor) for it in attachments]
        question = find_question(run.messages)
        fresh = [file for file in files if file.attachment.slot[0] == question]
        if question < len(run.messages) - 1:
            fresh = []  # the run goes on with an answer that has begun
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
                break
            await asyncio.wait(tasks, timeout=_TICK, return_when=asyncio.FIRST_COMPLETED)
        lines = {it.attachment.slot: it.write_line() for it in files}
        messages = replace_attachments(run.messages, _drop_none(lines))
        yield Reading(
            messages=messages, passages=await self._find_passages(run, actor, files, question)
        )

    async def _begin(self, attachment: Attachment, run: RunInput, actor: Actor) -> _File:
        most = self._knowledge.settings.upload_bytes
        if attachment.size > most + 4:
            return _File(attachment, refusal=too_large(most))
        try:
            data, digest = await call(_decode, attachment)
        except Misuse as error:
            return _File(attachment, refusal=error.message)
        conversation = conversation_identifier(run.user, run.thread_id)
        add = self._knowledge.uploads.add
        job = add(data, attachment.name, conversation, actor=actor, digest=digest)
        return _File(attachment, job=job)

    async def _find_passages(
        self, run: RunInput, actor: Actor, files: Sequence[_File], question: int
    ) -> Sequence[Passage]:
        """Return short files that were attached just now, and of others what fits the question."""
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
        settings = self._knowledge.settings
        try:
            return await self._knowledge.search(
                queries, actor=actor, prefix=prefix, limit=settings.retrieval_limit, threshold=0.05
            )
        except CopilotError:  # the embedder is out of reach, or the policy has changed
            return []

    async def _read(self, uris: Sequence[str], actor: Actor) -> list[Passage]:
        try:
            resources = await self._knowledge.resources.get(
                uris, access=self._knowledge.access(actor)
            )
        except AccessDenied:
            return []
        return [build_passage(it, self._knowledge.link) for it in resources]


def _decode(attachment: Attachment) -> tuple[bytes, str]:
    data = attachment.decode()
    return data, hash_bytes(data)


def _describe(question: str, files: Sequence[Mapping[str, Any]]) -> Activity:
    return Activity(
        message_id=f"files-{question}", activity_type=FILES, content={"files": [*files]}
    )


def _drop_none(lines: Mapping[Slot, str | None]) -> Mapping[Slot, str]:
    return {slot: line for slot, line in lines.items() if line is not None}
