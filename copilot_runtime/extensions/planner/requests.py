"""What the tasks of a plan may use of the request that it was made for."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from copilot_runtime.api.action import Action
from copilot_runtime.api.checkpoints import Checkpoints
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.extensions.planner.plan import Plan

ActionsOf = Callable[[RunInput], Awaitable[Sequence[Action]]]
"""Returns the server's actions for a run."""


class PlanRequests:
    """Keeps requests while their plans are carried out here.

    Headers and properties are stored nowhere: a plan that another server goes on with has its
    user and its thread alone. `checkpoints` is where its agents store what they wait with.
    """

    def __init__(self, actions_of: ActionsOf, checkpoints: Checkpoints | None = None) -> None:
        self._actions_of = actions_of
        self._checkpoints = checkpoints
        self._requests: dict[str, RunInput] = {}

    def add(self, plan_id: str, run: RunInput) -> None:
        """Keep the request of a plan that begins."""
        self._requests[plan_id] = run

    def forget(self, plan_id: str) -> None:
        """Drop the request of a plan that is not carried out any more."""
        self._requests.pop(plan_id, None)

    async def get(self, plan: Plan) -> RunInput:
        """Return the request of a plan."""
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
