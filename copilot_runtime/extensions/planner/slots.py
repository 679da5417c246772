"""Concurrency slots of running plans: each counts against its user's limit of concurrent runs."""

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import NamedTuple

from copilot_runtime.api.identity import Identity, split_owner
from copilot_runtime.extensions.planner.plan import Plan

AcquireSlot = Callable[[Identity, str | None, str], Callable[[], None]]
"""Acquires a slot for an identity, an owner and a holder, even beyond the limit.

Returns the function that releases it.
"""


class _Owner(NamedTuple):
    """The user whose limit a running plan counts against."""

    identity: Identity
    owner: str | None


class PlanSlots:
    """Holds one concurrency slot for each plan that runs on this server.

    A plan that waits for a person, or has ended, holds none. Nothing is refused here: a plan taken
    over from a dead server continues even beyond the limit. Without `acquire`, no slots are held.
    """

    def __init__(self, acquire: AcquireSlot | None = None) -> None:
        self._acquire = acquire
        self._running: dict[str, _Owner] = {}
        self._shares: Counter[str] = Counter()
        self._releases: dict[str, Callable[[], None]] = {}

    def update(self, plan: Plan) -> None:
        """Acquire or release the slot of a plan, by its current status."""
        if plan.is_over or plan.status == "waiting":
            self.drop(plan.id)
            return
        owner = plan.created.user
        self._running.setdefault(plan.id, _Owner(identify_owner(owner), owner))
        self._adjust(plan.id)

    def drop(self, plan_id: str) -> None:
        """Release the slot of a plan that no longer runs here."""
        self._running.pop(plan_id, None)
        self._adjust(plan_id)

    @contextmanager
    def share(self, plan_id: str, identity: Identity, owner: str | None) -> Generator[None]:
        """Let a plan share the slot of the run that starts it, for the length of a block.

        After the block, the plan holds a slot of that user.
        """
        self._shares[plan_id] += 1
        self._adjust(plan_id)
        try:
            yield
        finally:
            self._shares[plan_id] -= 1
            if not self._shares[plan_id]:
                del self._shares[plan_id]
            if plan_id in self._running:
                self._running[plan_id] = _Owner(identity, owner)
            self._adjust(plan_id)

    def _adjust(self, plan_id: str) -> None:
        owner_of_slot = None if plan_id in self._shares else self._running.get(plan_id)
        if owner_of_slot is None:
            if (release := self._releases.pop(plan_id, None)) is not None:
                release()
        elif self._acquire is not None and plan_id not in self._releases:
            self._releases[plan_id] = self._acquire(*owner_of_slot, name_slot_holder(plan_id))


def identify_owner(owner: str | None) -> Identity:
    """Return what a plan's owner says of an identity: its tenant."""
    return Identity(tenant=split_owner(owner)[0])


def name_slot_holder(plan_id: str) -> str:
    """Return the holder name of a plan's slot, which is the same on all servers."""
    return f"plan:{plan_id}"
