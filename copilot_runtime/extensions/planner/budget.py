"""Budgets of plans: limits on requests, tokens, dollars and time, for all tasks together."""

import asyncio
import logging
from collections.abc import Coroutine
from time import monotonic
from typing import Any, TypeVar

from copilot_runtime.api.budget import Budget, Limit
from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.extensions.planner.plan import Plan, TaskState

T = TypeVar("T")

MIN_REQUESTS, _REQUESTS_PER_TASK = 2000, 10
"""Maximum requests to models of one plan, sub-agents and retries included: for each of the tasks
that it may have, and in any case."""

logger = logging.getLogger(__name__)


class PlanBudgets:
    """The budget of a plan, and those of its tasks, which are parts of it.

    Times of events are those of a clock that may be set, so the seconds are counted here.

    Args:
        plan: The plan, whose log has what is used, also before a crash.
        owner: The budget of the plan's user, if there is one.
    """

    def __init__(self, plan: Plan, owner: Budget | None) -> None:
        self._plan = plan
        self._seconds = plan.worked_seconds
        self._since = None if plan.is_waiting else monotonic()
        self._owner = owner
        self._budgets: dict[str, Budget] = {}
        self._has_warned = False

    def follow(self) -> None:
        """Count no seconds while the plan waits for people; call it after each event."""
        if self._plan.is_waiting:
            self._seconds, self._since = self._get_seconds(), None
        elif self._since is None:
            self._since = monotonic()

    def find(self, state: TaskState) -> Budget:
        """Return the budget of a task, or of the plan for its root."""
        if (budget := self._budgets.get(state.id)) is None:
            budget = self._budgets[state.id] = self._build(state)
        return budget

    async def limit_time(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine within the plan's remaining time, and return its result.

        Raises `LimitExceeded` if the time runs out.
        """
        most = self._plan.limits.seconds
        limit = asyncio.timeout(None if most is None else most - self._get_seconds())
        try:
            async with limit:
                return await work
        except TimeoutError:
            if limit.expired():
                raise self._build_time_error(0) from None
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

    def _build(self, state: TaskState) -> Budget:
        name = "The plan" if state.parent is None else f"The task {state.task.name!r}"
        setting = "planner.tokens" if state.parent is None else "tokens"
        most = state.task.tokens

        def build_token_error(used: float) -> LimitExceeded:
            return LimitExceeded(
                f"{name} has used {used:.0f} tokens; at most {most} are allowed, by its "
                f"`{setting}`."
            )

        found: list[Limit] = []
        if most is not None:
            found.append(Limit("tokens", most, build_token_error, read=lambda: state.tokens))
        if state.parent is not None:
            return Budget(found, parent=self.find(state.parent))
        return Budget([*found, *self._list_plan_limits(state)], parent=self._owner)

    def _list_plan_limits(self, root: TaskState) -> list[Limit]:
        limits = self._plan.limits
        most = max(MIN_REQUESTS, _REQUESTS_PER_TASK * limits.tasks)
        error = self._build_request_error
        found = [Limit("requests", most, error, read=lambda: root.requests)]
        if limits.dollars is not None:
            error = self._build_dollar_error
            found.append(Limit("dollars", limits.dollars, error, read=lambda: root.dollars))
        if limits.seconds is not None:
            error = self._build_time_error
            found.append(Limit("seconds", limits.seconds, error, read=self._get_seconds))
        return found

    def _get_seconds(self) -> float:
        """Return the seconds for which the plan has run, without those of waiting for people."""
        return self._seconds + (0.0 if self._since is None else monotonic() - self._since)

    def _build_request_error(self, used: float) -> LimitExceeded:
        return LimitExceeded(
            f"The plan has sent {used:.0f} requests to models, planning included: "
            "the most of one plan."
        )

    def _build_dollar_error(self, used: float) -> LimitExceeded:
        return LimitExceeded(
            f"The plan has cost ${used:.4f}; at most ${self._plan.limits.dollars:g} are allowed, "
            "by `planner.dollars`."
        )

    def _build_time_error(self, _used: float) -> LimitExceeded:
        return LimitExceeded(
            f"The plan has worked for {self._plan.limits.seconds:g} seconds; no more are allowed, "
            "by `planner.seconds`."
        )
