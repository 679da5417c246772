"""Data problems: sources that cannot be read, and tables that no user may read."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from time import monotonic

from copilot_runtime.base.concurrency import retrieve_exception
from copilot_runtime.extensions.analyst.engine.engine import Engine
from copilot_runtime.extensions.analyst.engine.store import LOSS
from copilot_runtime.extensions.analyst.scope_rules import ScopeRules

logger = logging.getLogger(__name__)

_FIRST_WAIT = 5.0
_LONGEST_WAIT = 300.0
"""Maximum delay between two attempts to read a source, in seconds; the delay doubles each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A source or table that cannot be queried, or only in an old version."""

    name: str
    sentence: str
    """A sentence for users, without cell values and paths."""


class Problems:
    """Lists data problems, and retries failed sources when a question arrives.

    Args:
        on_load: Called after a source could be read.
    """

    def __init__(
        self, engine: Engine, rules: ScopeRules, on_load: Callable[[], Awaitable[object]]
    ) -> None:
        self._engine = engine
        self._rules = rules
        self._on_load = on_load
        self._wait = _FIRST_WAIT
        self._next = 0.0
        self._task: asyncio.Task[None] | None = None

    def list(self) -> Sequence[Problem]:
        """Return the problems of sources, followed by those of tables."""
        engine = self._engine
        found = [
            Problem(name=name, sentence=error.public) for name, error in engine.problems.items()
        ]
        if engine.is_lost:
            found.append(Problem(name="store", sentence=LOSS))
        for dataset in engine.datasets.values():
            if gap := self._rules.find_gap(dataset):
                sentence = f"Nobody may ask about {dataset.name!r}. {gap}"
                found.append(Problem(name=dataset.name, sentence=sentence))
        return found

    def log(self) -> None:
        """Log the tables that no user may read, and those without a row filter."""
        self._next = monotonic() + self._wait
        for dataset in self._engine.datasets.values():
            if gap := self._rules.find_gap(dataset):
                logger.error(
                    "Nobody may ask about %r: %s If all may, write the filter %s: true.",
                    dataset.name,
                    gap,
                    dataset.name,
                )
        if names := self._rules.list_open():
            logger.warning("No row filter stands around %s: everybody reads it.", ", ".join(names))

    def retry(self) -> None:
        """Retry failed sources in the background, unless a retry is too recent."""
        if not self._engine.problems:
            self._wait = _FIRST_WAIT
            return
        is_busy = self._task is not None and not self._task.done()
        if is_busy or monotonic() < self._next:
            return
        self._wait = min(2 * self._wait, _LONGEST_WAIT)
        self._task = asyncio.create_task(
            self._load(), name="analyst: load data again", context=Context()
        )
        self._task.add_done_callback(retrieve_exception)

    async def wait(self) -> None:
        """Wait until the current attempt has ended."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def aclose(self) -> None:
        """Cancel the current attempt."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _load(self) -> None:
        try:
            if await self._engine.retry():
                await self._on_load()
                self.log()
        finally:
            self._next = monotonic() + self._wait
