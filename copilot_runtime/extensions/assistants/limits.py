"""Limits of an assistant's run: concurrent and total tool calls, and requests to models."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from copilot_runtime.adapters.assembly import MAX_CALLS
from copilot_runtime.api.action import Action, ActionContext
from copilot_runtime.api.budget import Budget, Limit
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.extensions.assistants.definition import AssistantDefinition


class CallLimiter:
    """Limits the tool calls of a run, including those of sub-agents.

    A call beyond the budget fails with a result for the model. A call beyond `max_parallel` waits;
    its timeout starts after the wait.
    """

    def __init__(self, budget: Budget, max_parallel: int, timeout: float) -> None:
        self._budget = budget
        self._max_parallel = max_parallel
        self._timeout = timeout
        self._slots = asyncio.Semaphore(max_parallel)

    def limit(self, action: Action, *, takes_slot: bool = True) -> Action:
        """Return the action with the limits applied.

        An action that waits for other calls must not take a slot: they would deadlock.
        """
        run_action, timeout = action.run, action.timeout or self._timeout
        if run_action is None:
            return action

        async def run(values: Mapping[str, Any], context: ActionContext) -> Any:
            await self._budget.take_call()
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


def build_budget(definition: AssistantDefinition, parent: Budget | None) -> Budget:
    """Return the budget of an assistant's run: calls of tools and requests to models.

    A run that keeps `max_calls` cannot reach the limit of requests: a call causes at most two, the
    first one of a sub-agent, and the one with its result. A model that only calls sub-agents ends
    the whole run there, not only the innermost one.
    """
    one = definition
    requests = 2 + one.max_turns + one.continuations + 2 * one.max_calls

    def build_request_error(used: float) -> LimitExceeded:
        return LimitExceeded(
            f"The assistant {one.name!r} and its sub-agents sent {used:.0f} requests to models in "
            f"one run, the most by its `max_turns` ({one.max_turns}) and `max_calls` "
            f"({one.max_calls}).",
            hint=f"Look at what sub-agents call, or raise max_calls in {one.name}.agent.md.",
        )

    def build_call_error(used: float) -> LimitExceeded:
        return LimitExceeded(
            f"There were {used:.0f} calls of tools in this run, the most by `max_calls`. Answer "
            "with what there is."
        )

    limits = (
        Limit("requests", requests, build_request_error),
        Limit("calls", one.max_calls, build_call_error),
    )
    return Budget(limits, parent=parent, depth=parent.depth if parent else 0)
