"""Limits the number of an assistant's tool calls: concurrent ones, and the total."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from copilot_runtime.adapters.assembly import MAX_CALLS
from copilot_runtime.api.action import Action, ActionContext
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import LimitExceeded


class CallLimiter:
    """Counts the tool calls of a run, including those of sub-agents.

    A call beyond `max_calls` fails with a result for the model. A call beyond `max_parallel` waits;
    its timeout starts after the wait.
    """

    def __init__(self, max_calls: int, max_parallel: int, timeout: float) -> None:
        self._max_calls = max_calls
        self._max_parallel = max_parallel
        self._timeout = timeout
        self._slots = asyncio.Semaphore(max_parallel)
        self._calls = 0

    def limit(self, action: Action, *, takes_slot: bool = True) -> Action:
        """Return the action with the limits applied.

        An action that waits for other calls must not take a slot: they would deadlock.
        """
        run_action, timeout = action.run, action.timeout or self._timeout
        if run_action is None:
            return action

        async def run(values: Mapping[str, Any], context: ActionContext) -> Any:
            self._count()
            if not takes_slot:
                return await call(run_action, values, context)
            async with self._slots:
                limit = asyncio.timeout(timeout)
                try:
                    async with limit:
                        return await call(run_action, values, context)
                except TimeoutError:
                    if not limit.expired():
                        raise
                    raise LimitExceeded(
                        f"The action {action.name!r} did not finish within {timeout:g} s."
                    ) from None

        waits = -(-MAX_CALLS // self._max_parallel) if takes_slot else 1
        return replace(action, run=run, timeout=timeout * waits + 1)

    def _count(self) -> None:
        self._calls += 1
        if self._calls > self._max_calls:
            raise LimitExceeded(
                f"There were {self._max_calls} calls of tools in this run, the most by "
                "`max_calls`. Answer with what there is."
            )
