"""The request that a plan was created for, whose tools and properties its tasks use."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from copilot_runtime.api.action import Action
from copilot_runtime.api.run_input import Checkpoints, RunInput
from copilot_runtime.extensions.planner.plan import Plan

ListActions = Callable[[RunInput], Awaitable[Sequence[Action]]]
"""Lists the server's actions for a run."""


class PlanRequests:
    """Requests of the plans that run on this server, by plan id.

    Headers and properties are never stored: if another server takes a plan over, the rebuilt
    request has only the user and the thread. Its agents store interrupted runs in `checkpoints`.
    """

    def __init__(self, actions_of: ListActions, checkpoints: Checkpoints | None = None) -> None:
        self._actions_of = actions_of
        self._checkpoints = checkpoints
        self._requests: dict[str, RunInput] = {}

    def add(self, plan_id: str, run: RunInput) -> None:
        """Add the request of a new plan."""
        self._requests[plan_id] = run

    def forget(self, plan_id: str) -> None:
        """Remove the request of a plan that no longer runs here."""
        self._requests.pop(plan_id, None)

    async def get(self, plan: Plan) -> RunInput:
        """Return the request of a plan, rebuilt from its log if another server accepted it."""
        run = self._requests.get(plan.id)
        if run is None:
            created = plan.created
            run = RunInput(
                thread_id=created.thread_id,
                run_id=created.run_id,
                messages=(),
                agent=created.agent or None,
                user=created.user,
                checkpoints=self._checkpoints,
            )
            run = replace(run, actions=await self._actions_of(run))
            self._requests[plan.id] = run
        return run
