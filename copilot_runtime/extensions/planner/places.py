"""Places of plans among the answers that somebody may have under way at one time."""

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import NamedTuple

from copilot_runtime.api.identity import Identity, split_owner
from copilot_runtime.extensions.planner.plan import Plan

Hold = Callable[[Identity, str | None, str], Callable[[], None]]
"""Takes a place for somebody and a holder, if there is none left, too; returns what gives it back.
"""


class _Starter(NamedTuple):
    """Who has set a plan going."""

    identity: Identity
    owner: str | None


class PlanPlaces:
    """Has each plan that is at work on this server hold a place, and none that waits or is over.

    Nothing is refused here: a plan of a server that died goes on. `hold` takes the places; without
    it, there are none.
    """

    def __init__(self, hold: Hold | None = None) -> None:
        self._hold = hold
        self._at_work: dict[str, _Starter] = {}
        self._covers: Counter[str] = Counter()
        self._held: dict[str, Callable[[], None]] = {}

    def update(self, plan: Plan) -> None:
        """Take or give back the place of a plan, as it is now."""
        if plan.is_over or plan.status == "waiting":
            self.drop(plan.id)
            return
        owner = plan.created.user
        identity = Identity(tenant=split_owner(owner)[0])
        self._at_work.setdefault(plan.id, _Starter(identity, owner))
        self._settle(plan.id)

    def drop(self, plan_id: str) -> None:
        """Give the place of a plan back that does not work here any more."""
        self._at_work.pop(plan_id, None)
        self._settle(plan_id)

    @contextmanager
    def cover(self, plan_id: str, identity: Identity, owner: str | None) -> Generator[None]:
        """Let a plan hold none while who sets it going has one: both are one answer.

        The place that it takes then is one of theirs.
        """
        self._covers[plan_id] += 1
        self._settle(plan_id)
        try:
            yield
        finally:
            self._covers[plan_id] -= 1
            if not self._covers[plan_id]:
                del self._covers[plan_id]
            if plan_id in self._at_work:
                self._at_work[plan_id] = _Starter(identity, owner)
            self._settle(plan_id)

    def _settle(self, plan_id: str) -> None:
        starter = None if plan_id in self._covers else self._at_work.get(plan_id)
        if starter is None:
            if (release := self._held.pop(plan_id, None)) is not None:
                release()
        elif self._hold is not None and plan_id not in self._held:
            self._held[plan_id] = self._hold(*starter, name_holder(plan_id))


def name_holder(plan_id: str) -> str:
    """Return the holder of a plan's place, for all servers."""
    return f"plan:{plan_id}"
