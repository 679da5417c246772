"""Runs one call of a server action as a run, for external programs."""

from collections.abc import Mapping
from typing import Any

from copilot_runtime.actions.execute import execute
from copilot_runtime.api.agent import Agent
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Events,
)
from copilot_runtime.api.messages import new_id
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import NotFound
from copilot_runtime.base.jsontext import dumps


class SingleCallAgent(Agent):
    """Calls the action `name` and ends, so that hooks, stages and limits apply to the call, too.

    An instance serves one run. The action may take `timeout` seconds, unless it has its own limit.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any], *, timeout: float) -> None:
        self.name = name
        self.arguments = dumps(arguments).decode()
        self.timeout = timeout

    async def run(self, run: RunInput) -> Events:
        """Yield the call and its result. Cancelled, the action is cancelled, too.

        Raises `NotFound` if the server has no such action.
        """
        action = next((one for one in run.actions if one.name == self.name), None)
        if action is None or action.run is None or action.available == "disabled":
            raise NotFound(f"There is no action {self.name[:100]!r}.")
        call_id = new_id()
        yield ActionExecutionStart(call_id=call_id, name=self.name)
        yield ActionExecutionArgs(call_id=call_id, delta=self.arguments)
        yield ActionExecutionEnd(call_id=call_id)
        context = run.action_context(call_id)
        outcome = await execute(action, self.arguments, context, timeout=self.timeout)
        yield ActionExecutionResult(call_id=call_id, name=self.name, result=outcome.result)
