"""Background work on the data: statistics ahead of questions, and refreshes of changed sources."""

import asyncio
import logging
from contextvars import Context

from copilot_runtime.base.concurrency import retrieve_exception
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.analyst.engine.datasets import Dataset
from copilot_runtime.extensions.analyst.engine.engine import Engine
from copilot_runtime.extensions.analyst.prompt.context_folder import ContextFolder
from copilot_runtime.extensions.analyst.scope import Scope
from copilot_runtime.extensions.analyst.scope_rules import ScopeRules

MIN_ROWS = 100_000
"""Minimum number of rows; smaller data sets are analysed on demand."""

_MOST_DATASETS = 20
"""Maximum number of data sets counted ahead, the largest first: the engine's cache is limited."""

logger = logging.getLogger(__name__)


class Upkeep:
    """Computes statistics of large data sets ahead of time, and refreshes changed sources.

    Args:
        engine: The engine with the data.
        rules: Builds the rules of scopes.
        contexts: The operator's files, whose SQL and metrics must fit the data.
        interval: Seconds between two refreshes; 0 disables them.
    """

    def __init__(
        self,
        engine: Engine,
        rules: ScopeRules,
        contexts: ContextFolder,
        *,
        interval: float,
    ) -> None:
        self._engine = engine
        self._rules = rules
        self._contexts = contexts
        self._interval = interval
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the background task; call it once the data is loaded."""
        self._warn_of_metrics()
        self._task = asyncio.create_task(
            self._run(), name="analyst: keep data up to date", context=Context()
        )
        self._task.add_done_callback(retrieve_exception)

    async def aclose(self) -> None:
        """Stop the background task."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

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
        for dataset in sorted(large, key=_get_size, reverse=True)[:_MOST_DATASETS]:
            try:
                await self._engine.describe(dataset.name, scope)
            except CopilotError as error:  # the next question reports the error
                logger.debug("The data set %r could not be counted: %s", dataset.name, error)

    def _warn_of_metrics(self) -> None:
        tables = {one.name: one.columns for one in self._engine.datasets.values()}
        for metric in self._contexts.files.catalog.list_stale(tables):
            logger.warning("The metric %r is left out: %s", metric.name, metric.reason)


def _get_size(dataset: Dataset) -> int:
    return dataset.row_count
