"""Update the resources from their sources, and the indexes from the resources."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from copilot_runtime.base.concurrency import retrieve_exception
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsonvalue import JsonObject, get_text
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.index import UpdateReport
from copilot_runtime.extensions.knowledge.resources import Resource
from copilot_runtime.extensions.knowledge.spans import start_ingest_span, start_ingest_step_span
from copilot_runtime.telemetry import Span, semconv, trace_block

if TYPE_CHECKING:
    from copilot_runtime.extensions.knowledge.ingestion import IngestProgress, IngestReport
    from copilot_runtime.extensions.knowledge.knowledge import Knowledge
    from copilot_runtime.extensions.knowledge.vectors import EmbeddingReport


Step = Literal["read", "store", "embed", "link"]
StepProgress = Callable[[Step, int, int], None]
"""Callback with the step of an update, its completed amount and its total."""

State = Literal["closed", "updating", "ready", "incomplete", "failed"]
"""`incomplete` means that some resources have no vector; the log has the reason."""

_FIRST_UPDATE = 10.0
"""Maximum seconds that questions wait for the very first update."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeStatus:
    """The status of the knowledge, for operators."""

    state: State
    resources: int = 0
    error: str = ""
    """The error of the last update; empty if it succeeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeUpdate:
    """The results of one update: of the sources, if any, and of both indexes."""

    sources: "IngestReport | None"
    vectors: "EmbeddingReport"
    graph: Any


class Updater:
    """Runs the updates of a `Knowledge` one after the other, also in the background."""

    def __init__(self, knowledge: "Knowledge") -> None:
        self._knowledge = knowledge
        self._writing = asyncio.Lock()
        self._background: _BackgroundUpdate | None = None
        self._count = 0
        self._gap = ""
        """The reason why some resources have no vector; empty if all have one."""

    def status(self) -> KnowledgeStatus:
        """Return the status, without opening the storage."""
        background = self._background
        error = background.error if background else ""
        state: State = "incomplete" if self._gap else "ready"
        if background is None:
            state = "closed"
        elif background.is_running:
            state = "updating"
        elif error:
            state = "failed"
        return KnowledgeStatus(state=state, resources=self._count, error=error)

    def start(self) -> None:
        """Start a background update of sources and indexes, unless one is running."""
        if self._background is None or not self._background.is_running:
            error = self._background.error if self._background else ""
            self._background = _BackgroundUpdate(self, error)

    async def update(
        self, sources: Sequence[str | Path] | None, progress: StepProgress | None
    ) -> KnowledgeUpdate:
        """Ingest sources, and update both indexes. Updates run one after the other."""
        async with self._writing:
            with trace_block(start_ingest_span(self._knowledge.telemetry)) as span:
                update = await self._update(sources, progress)
                if span.is_recording:
                    _describe_update(span, update)
                return update

    async def _update(
        self, sources: Sequence[str | Path] | None, progress: StepProgress | None
    ) -> KnowledgeUpdate:
        knowledge = self._knowledge
        if not knowledge.resources.is_reconciled:  # with what other programs may have written
            await knowledge.resources.reconcile()
        report = None
        if chosen := knowledge.sources if sources is None else [*sources]:
            report = await knowledge.ingestion.run(chosen, _follow(progress), wait=True)
        vectors = await self._update_vectors(progress)
        self._gap = await self._find_gap(vectors)
        with trace_block(start_ingest_step_span("link")) as span:
            graph = await knowledge.graph.update(knowledge.resources, _step("link", progress))
            _describe_step(span, graph)
            self._report(graph)
        await self.count()
        return KnowledgeUpdate(sources=report, vectors=vectors, graph=graph)

    async def embed(self, uris: Collection[str], progress: StepProgress | None) -> None:
        """Embed some resources, or remove deleted ones, also while an update is running."""
        report = await self._update_vectors(progress, only=uris)
        self._gap = next(iter(report.failed.values()), self._gap)
        await self.count()

    async def _update_vectors(
        self, progress: StepProgress | None, only: Collection[str] | None = None
    ) -> "EmbeddingReport":
        knowledge = self._knowledge
        with trace_block(start_ingest_step_span("embed")) as span:
            step = _step("embed", progress)
            report = await knowledge.vectors.update(knowledge.resources, step, only=only)
            _describe_step(span, report)
            self._report(report)
            return report

    def _report(self, update: UpdateReport) -> None:
        """Notify other processes of an update that has changed an index."""
        if update.added or update.changed or update.removed:
            self._knowledge.report_change()

    async def update_all(self) -> None:
        """Update everything that may have changed while no server was running."""
        started = monotonic()
        await self._knowledge.uploads.resume()
        await self.update(None, None)
        seconds = monotonic() - started
        if self._gap:
            logger.warning(
                "Knowledge is incomplete: a search by meaning misses resources. %s", self._gap
            )
        else:
            logger.info(
                "Knowledge: %d resources, up to date after %.1f s; vectors by %s",
                self._count,
                seconds,
                self._knowledge.embedder.model,
            )

    async def count(self) -> int:
        """Return the number of resources, and store it for the status."""
        self._count = len(await self._knowledge.resources.versions())
        return self._count

    async def wait_for_first(self) -> None:
        """Wait a limited time for the very first update, so that searches find something."""
        if self._background is not None and self._background.is_running:
            await self._background.wait_for_first()

    async def aclose(self) -> None:
        """Cancel the background update."""
        if self._background is not None:
            await self._background.cancel()
            self._background = None

    async def _find_gap(self, vectors: "EmbeddingReport") -> str:
        """Return the reason why some resources have no vector, or an empty string."""
        from copilot_runtime.extensions.knowledge.vectors.update import describe_failure

        if vectors.failed:
            return next(iter(vectors.failed.values()))
        try:
            await self._knowledge.embedder.check_key()
        except CopilotError as error:
            return describe_failure(error)
        return ""


class _BackgroundUpdate:
    """One background update. Its error is logged, and part of the status until one succeeds."""

    def __init__(self, updater: Updater, error: str) -> None:
        self.error = error
        """The error of this update, or of the previous one while this one is running."""
        self._updater = updater
        self._began = monotonic()
        self._counted = asyncio.Event()
        """Set once the number of resources is known."""
        self._is_first = False
        # an empty context: the first caller may be gone before the update ends
        self._task = asyncio.create_task(self._run(), name="update knowledge", context=Context())
        self._task.add_done_callback(retrieve_exception)

    @property
    def is_running(self) -> bool:
        return not self._task.done()

    async def wait_for_first(self) -> None:
        """Wait for a recently started update if there were no resources before it.

        Returns early if it takes long; searches then use the completed part.
        """
        await self._counted.wait()
        if self._is_first and (left := self._began + _FIRST_UPDATE - monotonic()) > 0:
            await asyncio.wait((self._task,), timeout=left)

    async def cancel(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _run(self) -> None:
        try:
            self._is_first = not await self._updater.count()
            self._counted.set()
            await self._updater.update_all()
            self.error = ""
        except Exception as error:
            self.error = error.public if isinstance(error, CopilotError) else type(error).__name__
            is_ours = isinstance(error, CopilotError)
            logger.error("Knowledge is not up to date: %s", error, exc_info=not is_ours)
        finally:
            self._counted.set()


def _describe_update(span: Span, update: KnowledgeUpdate) -> None:
    """Set the counts of an update as attributes, without names of files."""
    failures, report = len(update.vectors.failed), update.sources
    if report is not None:
        failures += len(report.failed)
        read = len(report.new) + len(report.changed) + report.unchanged
        span.set_attributes(
            {
                semconv.INGEST_SOURCES: read + len(report.failed),
                semconv.INGEST_CHANGES: report.resources + report.deleted,
            }
        )
    span.set_attributes({semconv.INGEST_FAILURES: failures})


def _describe_step(span: Span, report: UpdateReport) -> None:
    span.set_attributes(
        {
            semconv.INGEST_CHANGES: report.added + report.changed + report.removed,
            semconv.INGEST_FAILURES: len(report.failed),
        }
    )


def _follow(progress: StepProgress | None) -> "Callable[[IngestProgress], None] | None":
    if progress is None:
        return None
    return lambda at: progress(at.stage, at.done, at.total)


def _step(step: Step, progress: StepProgress | None) -> Callable[[int, int], None] | None:
    return None if progress is None else partial(progress, step)


ReadFields = Callable[[], Mapping[str, JsonObject]]

_RETRY = 5.0
"""Seconds until failed writes are retried."""

_ORIGIN = "origin"
"""The field that names the owner of a mirrored resource; other resources are not touched."""


class ResourceMirror:
    """Writes new and changed resources, and removes missing ones, in the background.

    Args:
        knowledge: Where the resources are.
        type: Their type.
        origin: What they are kept for, such as `assistants`: those of another one stay.
        read: Returns them as they are now, by name: their fields, with the `content`.
    """

    def __init__(
        self,
        knowledge: "Knowledge",
        type: str,
        origin: str,
        read: ReadFields,
    ) -> None:
        self._knowledge = knowledge
        self._type = type
        self._origin = origin
        self._read = read
        self._is_current = True
        self._writer: asyncio.Task[None] | None = None

    def update(self) -> None:
        """Start writing changes. Must be called on the event loop."""
        self._is_current = False
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(
                self._write_all(), name=f"resources: {self._origin}", context=Context()
            )
            self._writer.add_done_callback(retrieve_exception)

    async def flush(self) -> None:
        """Wait until all changes are written."""
        if self._writer is not None:
            await asyncio.wait((self._writer,))

    async def aclose(self) -> None:
        """Stop writing. The next start of the server writes the remaining changes."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.cancel()
            await asyncio.wait((writer,))

    async def _write_all(self) -> None:
        is_failing = False
        while not self._is_current:
            self._is_current = True
            try:
                await self._write()
            except CopilotError as error:
                self._is_current = False
                if not is_failing:
                    logger.warning("The %s are no resources for now: %s", self._origin, error)
                is_failing = True
                await asyncio.sleep(_RETRY)

    async def _write(self) -> None:
        resources = self._knowledge.resources
        current = {
            one.uri: one
            for one in (self._build(name, fields) for name, fields in self._read().items())
        }
        found = await resources.get(await resources.find_by_type(self._type))
        own = [one.uri for one in found if one.fields.get(_ORIGIN) == self._origin]
        await resources.delete_many(uri for uri in own if uri not in current)
        await resources.put_many(current.values())

    def _build(self, name: str, fields: JsonObject) -> Resource:
        others = {key: value for key, value in fields.items() if key != "content"}
        content = get_text(fields, "content")
        identifier = Identifier(self._type, name)
        return Resource(identifier, content, fields={**others, _ORIGIN: self._origin})
