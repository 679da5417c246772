"""Background work on the data: statistics ahead of questions, refreshes, and failed sources."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextvars import Context
from dataclasses import dataclass
from time import monotonic
from typing import Any

from copilot_runtime.base.concurrency import retrieve_exception
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.analyst.engine.engine import Engine
from copilot_runtime.extensions.analyst.engine.store import LOSS
from copilot_runtime.extensions.analyst.prompt.context_folder import ContextFolder
from copilot_runtime.extensions.analyst.scope_rules import ScopeRules
from copilot_runtime.extensions.analyst.sql.rules import Scope

MIN_ROWS = 100_000
"""Minimum number of rows; smaller data sets are analysed on demand."""

_MOST_DATASETS = 20
"""Maximum number of data sets counted ahead, the largest first: the engine's cache is limited."""
_FIRST_WAIT = 5.0
_LONGEST_WAIT = 300.0
"""Maximum delay between two attempts to read a source, in seconds; the delay doubles each time."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A source or table that cannot be queried, or only in an old version."""

    name: str
    sentence: str
    """A sentence for users, without cell values and paths."""


class Upkeep:
    """Computes statistics of large data sets ahead of time, and refreshes changed sources.

    It also lists the data problems, and retries failed sources when a question arrives.

    Args:
        engine: The engine with the data.
        rules: Builds the rules of scopes.
        contexts: The operator's files, whose SQL and metrics must fit the data.
        interval: Seconds between two refreshes; 0 disables them.
    """

    def __init__(
        self, engine: Engine, rules: ScopeRules, contexts: ContextFolder, *, interval: float
    ) -> None:
        self._engine = engine
        self._rules = rules
        self._contexts = contexts
        self._interval = interval
        self._wait = _FIRST_WAIT
        self._next = 0.0
        self._task: asyncio.Task[None] | None = None
        self._retry: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the background task; call it once the data is loaded."""
        self._warn_of_metrics()
        self._task = _start(self._run(), "keep data up to date")

    async def aclose(self) -> None:
        """Stop the background tasks."""
        tasks = [task for task in (self._task, self._retry) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def list_problems(self) -> Sequence[Problem]:
        """Return the problems of sources, followed by those of tables."""
        engine = self._engine
        found = [
            Problem(name=name, sentence=_name_problem(name, error.public))
            for name, error in engine.problems.items()
        ]
        if engine.is_lost:
            found.append(Problem(name="store", sentence=LOSS))
        for dataset in engine.datasets.values():
            if gap := self._rules.find_gap(dataset):
                sentence = f"No user may query {dataset.name!r}. {gap}"
                found.append(Problem(name=dataset.name, sentence=sentence))
        return found

    def log_problems(self) -> None:
        """Log the tables that no user may read, and those without a row filter."""
        self._next = monotonic() + self._wait
        for dataset in self._engine.datasets.values():
            if gap := self._rules.find_gap(dataset):
                logger.error(
                    "No user may query %r: %s To allow all users, set the filter %s: true.",
                    dataset.name,
                    gap,
                    dataset.name,
                )
        if names := self._rules.list_open():
            logger.warning("No row filter applies to %s: all users may read it.", ", ".join(names))

    def retry(self) -> None:
        """Retry failed sources in the background, unless a retry is too recent."""
        if not self._engine.problems:
            self._wait = _FIRST_WAIT
            return
        is_busy = self._retry is not None and not self._retry.done()
        if is_busy or monotonic() < self._next:
            return
        self._wait = min(2 * self._wait, _LONGEST_WAIT)
        self._retry = _start(self._load(), "load data again")

    async def wait_for_retry(self) -> None:
        """Wait until the current attempt to read failed sources has ended."""
        if self._retry is not None:
            await asyncio.wait([self._retry])

    async def _load(self) -> None:
        try:
            if await self._engine.retry():
                await self._contexts.check()
                self.log_problems()
        finally:
            self._next = monotonic() + self._wait

    async def _run(self) -> None:
        await self._count_rows()
        while self._interval:
            await asyncio.sleep(self._interval)
            try:
                await self._refresh()
            except Exception as error:  # the next refresh may succeed
                logger.warning("The analyst's data could not be refreshed: %s", error)

    async def _refresh(self) -> None:
        engine = self._engine
        before = engine.version
        names = await engine.refresh()
        if engine.version == before:
            return
        logger.info("The analyst has copied again what has changed: %s.", ", ".join(names) or "all")
        await self._contexts.check()
        self._warn_of_metrics()
        await self._count_rows()

    async def _count_rows(self) -> None:
        """Compute statistics of data sets without row filters, one after the other."""
        scope = Scope()
        tables = self._rules.build(scope).tables
        large = [
            one
            for one in self._engine.list_datasets(scope)
            if one.row_count >= MIN_ROWS and tables[one.name].row_filter is None
        ]
        for dataset in sorted(large, key=lambda one: -one.row_count)[:_MOST_DATASETS]:
            try:
                await self._engine.describe(dataset.name, scope)
            except CopilotError as error:  # the next question reports the error
                logger.debug("The data set %r could not be counted: %s", dataset.name, error)

    def _warn_of_metrics(self) -> None:
        tables = {one.name: one.columns for one in self._engine.datasets.values()}
        for metric in self._contexts.files.catalog.list_stale(tables):
            logger.warning("The metric %r is left out: %s", metric.name, metric.reason)


def _name_problem(name: str, sentence: str) -> str:
    return sentence if name in sentence else f"{name}: {sentence}"


def _start(work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
    task = asyncio.create_task(work, name=f"analyst: {name}", context=Context())
    task.add_done_callback(retrieve_exception)
    return task
