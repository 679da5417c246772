"""Counts what the requests to models cost, for the budgets of plans."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec

from copilot_runtime.adapters.cost import price_usage
from copilot_runtime.adapters.pricing import load_prices
from copilot_runtime.api.events import Usage
from copilot_runtime.extensions.planner.events import PlanEntry, UsageAdded
from copilot_runtime.extensions.planner.plan import Plan
from copilot_runtime.extensions.planner.roles import TaskContext


async def count_usage(usage: Usage, context: TaskContext) -> None:
    """Count a request to a model for a task, also one that has failed.

    Where dollars are limited, prices are read before the first of them is counted.
    """
    dollars = price_usage(usage)
    if dollars is None and context.plan.limits.dollars is not None and find_spec("genai_prices"):
        await load_prices()
        dollars = price_usage(usage)
    await context.add_usage((usage.input_tokens or 0) + (usage.output_tokens or 0), dollars)


@asynccontextmanager
async def count_estimates(context: TaskContext) -> AsyncGenerator[Callable[[Usage], None]]:
    """Yield what takes usage that no event says; all of it is counted for a task at the end."""
    usages: list[Usage] = []
    try:
        yield usages.append
    finally:
        for usage in usages:
            await count_usage(usage, context)


class PlanUsage:
    """Follows plans, and tells what they use of models: `count` gets user, tokens and dollars."""

    def __init__(self, count: Callable[[str | None, int, float], None]) -> None:
        self._count = count

    def feed(self, plan: Plan, entry: PlanEntry) -> None:
        """Take what happened to a plan."""
        if isinstance(entry.event, UsageAdded):
            self._count(plan.created.user, entry.event.tokens, entry.event.dollars)
