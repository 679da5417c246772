"""Update the resources from their sources, and the indexes from the resources."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from copilot_runtime.base.concurrency import call, retrieve_exception
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.outages import log_failures
from copilot_runtime.extensions.knowledge.index import UpdateReport
from copilot_runtime.extensions.knowledge.policies import OWNERS_ONLY, Policy
from copilot_runtime.extensions.knowledge.spans import start_ingest_span, start_ingest_step_span
from copilot_runtime.extensions.knowledge.things import is_merged
from copilot_runtime.storage.lock import StorageLock
from copilot_runtime.telemetry import Span, semconv, trace_block

if TYPE_CHECKING:
    from copilot_runtime.extensions.knowledge.ingestion import IngestReport, SourceWatcher
    from copilot_runtime.extensions.knowledge.knowledge import Knowledge
    from copilot_runtime.extensions.knowledge.vectors import EmbeddingReport


Step = Literal["read", "store", "embed", "link"]
StepProgress = Callable[[Step, int, int], None]
"""Callback with the step of an update, its completed amount and its total."""

State = Literal["closed", "updating", "ready", "incomplete", "failed"]
"""`incomplete` means that some resources have no vector; the log has the reason."""

_FIRST_UPDATE = 10.0
"""Maximum seconds that questions wait for the very first update."""

_WATCH_LOCK = "ingestion/watch.json"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UpdateProgress:
    """The step of an update, and its completed share: a total would give hidden files away."""

    step: Step | Literal[""] = ""
    share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeStatus:
    """The status of the knowledge, for operators."""

    state: State
    resources: int = 0
    error: str = ""
    """The error of the last update; empty if it succeeded."""
    progress: UpdateProgress = UpdateProgress()


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
        self._watching: asyncio.Task[None] | None = None
        self._error = ""
        """The error of the last update in the background."""
        self._progress = UpdateProgress()
        self._count = 0
        self._generation: Hashable = None
        """The generation of the policy whose idle rules were logged last."""
        self._gap = ""
        """The reason why some resources have no vector; empty if all have one."""

    def status(self) -> KnowledgeStatus:
        """Return the status, without opening the storage."""
        state: State = "incomplete" if self._gap else "ready"
        if self._background is None:
            state = "closed"
        elif self._background.is_running or self._writing.locked():
            state = "updating"
        elif self._error:
            state = "failed"
        return KnowledgeStatus(
            state=state, resources=self._count, error=self._error, progress=self._progress
        )

    def start(self) -> None:
        """Start a background update of sources and indexes, unless one is running.

        Then watch the sources, if the settings say so.
        """
        if self._background is not None and self._background.is_running:
            return
        self._background = _BackgroundUpdate(self)
        if self._watching is None and self._is_watched:
            self._watching = asyncio.create_task(
                self._watch(self._background), name="watch sources", context=Context()
            )
            self._watching.add_done_callback(retrieve_exception)

    async def update(
        self,
        sources: Sequence[str | Path] | None,
        progress: StepProgress | None,
        only: Collection[str] | None = None,
    ) -> KnowledgeUpdate:
        """Ingest sources, or `only` some of their files, and update both indexes.

        Updates run one after the other.
        """

        def note(step: Step, done: int, total: int) -> None:
            self._progress = UpdateProgress(step, round(done / max(total, 1), 2))
            if progress is not None:
                progress(step, done, total)

        async with self._writing:
            try:
                with trace_block(start_ingest_span(self._knowledge.telemetry)) as span:
                    update = await self._update(sources, note, only)
                    if span.is_recording:
                        _describe_update(span, update)
                    return update
            finally:
                self._progress = UpdateProgress()

    async def _update(
        self,
        sources: Sequence[str | Path] | None,
        progress: StepProgress,
        only: Collection[str] | None,
    ) -> KnowledgeUpdate:
        knowledge = self._knowledge
        if not knowledge.resources.is_reconciled:  # with what other programs may have written
            await knowledge.resources.reconcile()
        report = None
        if chosen := knowledge.sources if sources is None else [*sources]:
            report = await knowledge.ingestion.run(
                chosen, lambda at: progress(at.stage, at.done, at.total), only=only, wait=True
            )
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
        if self._is_watched:
            await call(self._watcher.mark_all)  # before they are read: no change is missed
        await self._knowledge.uploads.resume()
        await self.update(None, None)
        seconds = monotonic() - started
        policy = self._knowledge.policy
        for problem in await call(policy.find_warnings):
            logger.warning("%s", problem.describe("The policy"))
        uris = await self._warn_of_idle_rules(policy)
        if uris and (hidden := sum(map(is_merged, uris))):
            logger.warning(
                "Things from before the policy are hidden: %d. Ingest their files again.", hidden
            )
        if self._gap:
            logger.warning(
                "Knowledge is incomplete: a search by meaning misses resources. %s", self._gap
            )
        else:
            logger.info(
                "Knowledge: %d %s in all, up to date after %.1f s; vectors by %s",
                self._count,
                "resource" if self._count == 1 else "resources",
                seconds,
                self._knowledge.embedder.model,
            )

    async def _warn_of_idle_rules(self, policy: Policy) -> Sequence[str]:
        """Log the rules that hide none of the stored resources, and return those."""
        self._generation = await call(lambda: policy.generation)
        uris = () if policy is OWNERS_ONLY else [*await self._knowledge.resources.versions()]
        for problem in await call(policy.find_idle_rules, uris):
            logger.warning("%s", problem.describe("The policy"))
        return uris

    @property
    def _is_watched(self) -> bool:
        return bool(self._knowledge.settings.watch and self._knowledge.sources)

    @cached_property
    def _watcher(self) -> "SourceWatcher":
        return self._knowledge.ingestion.watch(self._knowledge.sources)

    async def _watch(self, first: "_BackgroundUpdate") -> None:
        """Take in files that change, and look at the policy, in one of several processes."""
        interval, policy = self._knowledge.settings.watch, self._knowledge.policy
        await first.wait()
        while True:
            lock = StorageLock(self._knowledge.storage, _WATCH_LOCK)
            try:
                await lock.wait(interval)
                async with lock.hold():
                    while not lock.is_lost:
                        began = monotonic()
                        changed: set[str] = await call(self._watcher.look)
                        # on a slow disk, too, looks take a small part of the time
                        pause = max(interval, 20 * (monotonic() - began))
                        if changed and await self.attempt(self.update(None, None, changed)):
                            self._watcher.mark(changed)
                        with log_failures(logger, "The policy could not be looked at"):
                            if await call(lambda: policy.generation) != self._generation:
                                await self._warn_of_idle_rules(policy)
                        await asyncio.sleep(pause)
            except CopilotError as error:
                logger.warning("The sources are not watched for now: %s", error)
                await asyncio.sleep(interval)

    async def attempt(self, update: Awaitable[Any]) -> bool:
        """Wait for an update, and return whether it succeeded; else log its error."""
        try:
            await update
        except Exception as error:
            is_ours = isinstance(error, CopilotError)
            self._error = error.public if is_ours else type(error).__name__
            logger.error("Knowledge is not up to date: %s", error, exc_info=not is_ours)
            return False
        self._error = ""
        return True

    async def count(self) -> int:
        """Return the number of resources, and store it for the status."""
        self._count = await self._knowledge.resources.count()
        return self._count

    async def wait_for_first(self) -> None:
        """Wait a limited time for the very first update, so that searches find something."""
        if self._background is not None and self._background.is_running:
            await self._background.wait_for_first()

    async def aclose(self) -> None:
        """Cancel the background update, and stop watching."""
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.wait((watching,))
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
    """One background update."""

    def __init__(self, updater: Updater) -> None:
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

    async def wait(self) -> None:
        await asyncio.wait((self._task,))

    async def cancel(self) -> None:
        self._task.cancel()
        await self.wait()

    async def _run(self) -> None:
        await self._updater.attempt(self._update())
        self._counted.set()

    async def _update(self) -> None:
        self._is_first = not await self._updater.count()
        self._counted.set()
        await self._updater.update_all()


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


def _step(step: Step, progress: StepProgress | None) -> Callable[[int, int], None] | None:
    return None if progress is None else partial(progress, step)
