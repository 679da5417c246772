"""Limits of an assistant's run: concurrent and total tool calls, and requests to models."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from copilot_runtime.adapters.assembly import MAX_CALLS
from copilot_runtime.adapters.context_window import WrapperAdapter
from copilot_runtime.api.action import Action, ActionContext
from copilot_runtime.api.adapter import Adapter, ChatRequest
from copilot_runtime.api.events import Events
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.extensions.assistants.definition import AssistantDefinition


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


class LimitedAdapter(WrapperAdapter):
    """Counts the requests to models in one run of an assistant, including those of sub-agents.

    A run that keeps `max_calls` cannot reach the limit: a call causes at most two requests, the
    first one of a sub-agent and the one with its result. Each request beyond raises
    `LimitExceeded`, so a model that only calls sub-agents ends the run, not only the innermost one.
    """

    def __init__(self, adapter: Adapter, definition: AssistantDefinition) -> None:
        super().__init__(adapter)
        self._definition = definition
        self._max_requests = (
            definition.max_turns + definition.continuations + 2 * definition.max_calls
        )
        self._requests = 0

    def stream(self, request: ChatRequest) -> Events:
        """Yield the events of the adapter. Raises `LimitExceeded`, and the adapter's errors."""
        if self._requests >= self._max_requests:
            one = self._definition
            raise LimitExceeded(
                f"The assistant {one.name!r} and its sub-agents sent {self._requests} requests to "
                f"models in one run, the most by its `max_turns` ({one.max_turns}) and `max_calls` "
                f"({one.max_calls}).",
                hint=f"Look at what sub-agents call, or raise max_calls in {one.name}.agent.md.",
            )
        self._requests += 1
        return self.adapter.stream(request)
