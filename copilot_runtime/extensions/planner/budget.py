"""Budgets of plans: limits on tokens, dollars and time, and counting of model usage."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from importlib.util import find_spec
from time import monotonic
from typing import Any, TypeVar

from copilot_runtime.adapters.chat_span import price_usage
from copilot_runtime.adapters.pricing import load_prices
from copilot_runtime.api.events import Usage
from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.extensions.planner.events import PlanEntry, UsageAdded
from copilot_runtime.extensions.planner.plan import Plan, TaskState
from copilot_runtime.extensions.planner.roles import TaskContext

T = TypeVar("T")

logger = logging.getLogger(__name__)


class BudgetExceeded(LimitExceeded):
    """A plan or a task has exhausted its budget."""


class Budget:
    """Checks the budget of one plan, from when this server carries it out.

    Times of events are those of a clock that may be set, so the seconds are counted here.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._seconds = plan.worked_seconds
        self._since = None if plan.is_waiting else monotonic()
        self._has_warned = False

    def follow(self) -> None:
        """Count no seconds while the plan waits for people; call it after each event."""
        if self._plan.is_waiting:
            self._seconds, self._since = self._get_seconds(), None
        elif self._since is None:
            self._since = monotonic()

    def check(self, state: TaskState) -> None:
        """Raise `BudgetExceeded` if the task, one of its parents or the plan has no budget left."""
        limits = self._plan.limits
        for one in state.path():
            name = "The plan" if one.parent is None else f"The task {one.task.name!r}"
            if one.task.tokens is not None and one.tokens >= one.task.tokens:
                limit = "planner.tokens" if one.parent is None else "tokens"
                raise BudgetExceeded(
                    f"{name} has used {one.tokens} tokens; at most {one.task.tokens} are allowed, "
                    f"by its `{limit}`."
                )
        if limits.dollars is not None and self._plan.root.dollars >= limits.dollars:
            raise BudgetExceeded(
                f"The plan has cost ${self._plan.root.dollars:.4f}; at most ${limits.dollars:g} "
                "are allowed, by `planner.dollars`."
            )
        if (left := self._get_remaining_seconds()) is not None and left <= 0:
            raise self._build_time_error()

    async def limit_time(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine within the plan's remaining time, and return its result.

        Raises `BudgetExceeded` if the time runs out.
        """
        limit = asyncio.timeout(self._get_remaining_seconds())
        try:
            async with limit:
                return await work
        except TimeoutError:
            if limit.expired():
                raise self._build_time_error() from None
            raise

    def warn_of_price(self) -> None:
        """Log once that the plan's dollar limit cannot be enforced, as a model has no
        known price.
        """
        if self._plan.limits.dollars is not None and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "The plan %s may cost $%g by planner.dollars, and the price of a model that it "
                "uses is not known: what it costs does not count. Limit planner.tokens as well, "
                "or install copilot-runtime[prices].",
                self._plan.id,
                self._plan.limits.dollars,
            )

    def _get_remaining_seconds(self) -> float | None:
        limit = self._plan.limits.seconds
        return None if limit is None else limit - self._get_seconds()

    def _get_seconds(self) -> float:
        """Return the seconds for which the plan has run, without those of waiting for people."""
        return self._seconds + (0.0 if self._since is None else monotonic() - self._since)

    def _build_time_error(self) -> BudgetExceeded:
        limit = self._plan.limits.seconds or 0
        return BudgetExceeded(
            f"The plan has worked for {limit:g} seconds; no more are allowed, by `planner.seconds`."
        )


async def count_usage(usage: Usage, context: TaskContext) -> None:
    """Add the tokens and the price of a model request to a task; failed requests count, too.

    If the plan has a dollar limit, the price list is loaded before the first request is counted.
    """
    dollars = price_usage(usage)
    if dollars is None and context.plan.limits.dollars is not None and find_spec("genai_prices"):
        await load_prices()
        dollars = price_usage(usage)
    await context.add_usage((usage.input_tokens or 0) + (usage.output_tokens or 0), dollars)


@asynccontextmanager
async def count_estimates(context: TaskContext) -> AsyncGenerator[Callable[[Usage], None]]:
    """Yield a callback for usage that is estimated, not reported by an event.

    All of it is counted for the task when the block ends.
    """
    usages: list[Usage] = []
    try:
        yield usages.append
    finally:
        for usage in usages:
            await count_usage(usage, context)


class PlanUsage:
    """Plan listener that reports model usage: `count` gets the user, tokens and dollars."""

    def __init__(self, count: Callable[[str | None, int, float], None]) -> None:
        self._count = count

    def on_entry(self, plan: Plan, entry: PlanEntry) -> None:
        """Report the usage of an entry, if it has any."""
        if isinstance(entry.event, UsageAdded):
            self._count(plan.created.user, entry.event.tokens, entry.event.dollars)
