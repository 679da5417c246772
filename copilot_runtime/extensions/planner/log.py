"""Where plans are kept: their events, and which server carries each plan out."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import inf
from time import time

from copilot_runtime.base.errors import CopilotError, NotFound, StoreFailed
from copilot_runtime.extensions.planner.events import (
    PlanEntry,
    PlanEvent,
    QuestionAnswered,
    StopAsked,
)
from copilot_runtime.extensions.planner.plan import OVER, Status
from copilot_runtime.threads.store import ThreadKey

MOST_DELETIONS = 100
"""Plans that are deleted in one transaction."""


class LeaseLost(CopilotError):
    """Another server carries the plan out: this one was taken for dead."""

    code = "CONFLICT"
    status_code = 409
    visibility = "silent"
    severity = "info"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to carry out a plan. The number rises with each server that takes it over."""

    plan_id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSummary:
    """A plan in a list. Times are seconds since 1970."""

    id: str
    user: str | None
    thread_id: str
    created_at: float
    updated_at: float
    status: Status
    title: str

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens to it, unless it is done again."""
        return self.status in OVER

    @property
    def place(self) -> tuple[float, str]:
        """Where it stands in a list."""
        return self.created_at, self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanQuery:
    """Which plans are listed."""

    user: str | None = None
    """Whose plans; None, those of nobody."""
    is_everybody: bool = False
    """Whether `user` does not matter."""
    thread_id: str | None = None
    status: Status | None = None
    before: tuple[float, str] | None = None
    """Only plans behind this place of the list."""
    limit: int = 50

    def matches(self, summary: PlanSummary) -> bool:
        """Return whether a plan is meant."""
        return (
            (self.is_everybody or summary.user == self.user)
            and self.thread_id in (None, summary.thread_id)
            and self.status in (None, summary.status)
            and (self.before is None or summary.place < self.before)
        )


@dataclass(frozen=True, slots=True)
class PlanCommand:
    """What somebody wants of a plan that another server carries out."""

    id: int
    plan_id: str
    event: StopAsked | QuestionAnswered


class PlanLog(ABC):
    """The events of plans, in order. What `append` returned from survives a crash.

    All methods raise `StoreFailed` if the store cannot be used.
    """

    @abstractmethod
    async def open(self) -> None:
        """Make it ready for use, once."""

    @abstractmethod
    async def create(
        self, summary: PlanSummary, events: Sequence[PlanEvent]
    ) -> tuple[Lease, Sequence[PlanEntry]]:
        """Store a new plan with its first events; this server carries it out."""

    @abstractmethod
    def append(
        self,
        lease: Lease,
        number: int,
        events: Sequence[PlanEvent],
        *,
        status: Status | None = None,
    ) -> "asyncio.Future[Sequence[PlanEntry]]":
        """Store the next events, the first of which gets a number, and a new status of the plan.

        The future has their entries. It raises `LeaseLost`.
        """

    @abstractmethod
    async def read(self, plan_id: str, after: int = 0) -> Sequence[PlanEntry]:
        """Return the events of a plan behind a number. Raises `NotFound`."""

    @abstractmethod
    async def list_plans(self, query: PlanQuery) -> Sequence[PlanSummary]:
        """Return plans, the newest first: by when they were made, then by id."""

    @abstractmethod
    async def find(self, plan_id: str) -> PlanSummary:
        """Return a plan's summary. Raises `NotFound`."""

    @abstractmethod
    async def claim(self) -> Sequence[Lease]:
        """Take over all plans that are not over and whose server is dead."""

    @abstractmethod
    async def claim_plan(
        self, plan_id: str, number: int, events: Sequence[PlanEvent]
    ) -> tuple[Lease, Sequence[PlanEntry]]:
        """Take over a plan that is over, and store the events with which it goes on.

        Commands for it that nobody has carried out are dropped. Raises `NotFound`, or `LeaseLost`
        if somebody else was faster.
        """

    @abstractmethod
    async def renew(self, lease: Lease) -> Lease:
        """Return a new lease for a plan of this server; writes of the old one are refused.

        Raises `LeaseLost`.
        """

    async def find_stale(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Return those leases whose plans another server has taken over."""
        del leases
        return ()

    async def check_lease(self, lease: Lease) -> None:
        """Raise `LeaseLost` if another server has taken the plan over, as it is now."""
        if await self.find_stale([lease]):
            raise build_lost_error(lease.plan_id)

    async def delete_plans(self, *, before: float = inf, thread: ThreadKey | None = None) -> int:
        """Delete some plans that are over, and return how many: 0 if none of them is left.

        They are those with no event since `before`; with a thread, only those of it.
        """
        del before, thread
        return 0

    @abstractmethod
    async def add_command(self, plan_id: str, event: StopAsked | QuestionAnswered) -> None:
        """Keep a command for whoever carries the plan out."""

    @abstractmethod
    async def read_commands(self) -> Sequence[PlanCommand]:
        """Return the commands for the plans of this server, the oldest first."""

    @abstractmethod
    async def remove_command(self, id: int) -> None:
        """Drop a command that was carried out."""

    @abstractmethod
    async def aclose(self) -> None:
        """Release this server's plans, so that another one may take them over at once."""


class MemoryPlanLog(PlanLog):
    """Plans in memory: they end with the process.

    There are at most `max_plans`, not counting those that go on: the oldest go first.
    """

    def __init__(self, clock: Callable[[], float] = time, *, max_plans: int = 1000) -> None:
        self._clock = clock
        self._max_plans = max_plans
        self._summaries: dict[str, PlanSummary] = {}
        self._entries: dict[str, list[PlanEntry]] = {}
        self._commands: dict[int, PlanCommand] = {}
        self._command_ids = count(1)

    async def open(self) -> None:
        """Do nothing."""

    async def create(
        self, summary: PlanSummary, events: Sequence[PlanEvent]
    ) -> tuple[Lease, Sequence[PlanEntry]]:
        over = [one.id for one in self._summaries.values() if one.is_over]
        for id in over[: max(0, len(self._summaries) + 1 - self._max_plans)]:
            self._delete(id)
        self._summaries[summary.id], self._entries[summary.id] = summary, []
        lease = Lease(summary.id, 1)
        return lease, await self.append(lease, 1, events)

    def append(
        self,
        lease: Lease,
        number: int,
        events: Sequence[PlanEvent],
        *,
        status: Status | None = None,
    ) -> "asyncio.Future[Sequence[PlanEntry]]":
        now = self._clock()
        entries = number_events(events, number, now)
        self._entries[lease.plan_id] += entries
        summary = self._summaries[lease.plan_id]
        self._summaries[lease.plan_id] = replace(
            summary, updated_at=now, status=status or summary.status
        )
        future = asyncio.get_running_loop().create_future()
        future.set_result(entries)
        return future

    async def read(self, plan_id: str, after: int = 0) -> Sequence[PlanEntry]:
        await self.find(plan_id)
        return self._entries[plan_id][after:]

    async def list_plans(self, query: PlanQuery) -> Sequence[PlanSummary]:
        found = filter(query.matches, self._summaries.values())
        return sorted(found, key=lambda summary: summary.place, reverse=True)[: query.limit]

    async def find(self, plan_id: str) -> PlanSummary:
        if plan_id not in self._summaries:
            raise build_missing_error(plan_id)
        return self._summaries[plan_id]

    async def claim(self) -> Sequence[Lease]:
        return ()

    async def claim_plan(
        self, plan_id: str, number: int, events: Sequence[PlanEvent]
    ) -> tuple[Lease, Sequence[PlanEntry]]:
        if not (await self.find(plan_id)).is_over:
            raise build_lost_error(plan_id)
        self._drop_commands(plan_id)
        lease = Lease(plan_id, 1)
        return lease, await self.append(lease, number, events, status="running")

    async def renew(self, lease: Lease) -> Lease:
        return lease

    async def delete_plans(self, *, before: float = inf, thread: ThreadKey | None = None) -> int:
        ids = [
            one.id
            for one in self._summaries.values()
            if one.is_over
            and one.updated_at < before
            and (thread is None or thread == (one.user or "", one.thread_id))
        ]
        for id in ids:
            self._delete(id)
        return len(ids)

    def _drop_commands(self, plan_id: str) -> None:
        self._commands = {
            id: command for id, command in self._commands.items() if command.plan_id != plan_id
        }

    def _delete(self, plan_id: str) -> None:
        del self._summaries[plan_id], self._entries[plan_id]
        self._drop_commands(plan_id)

    async def add_command(self, plan_id: str, event: StopAsked | QuestionAnswered) -> None:
        id = next(self._command_ids)
        self._commands[id] = PlanCommand(id, plan_id, event)

    async def read_commands(self) -> Sequence[PlanCommand]:
        return [*self._commands.values()]

    async def remove_command(self, id: int) -> None:
        self._commands.pop(id, None)

    async def aclose(self) -> None:
        """Do nothing."""


def number_events(events: Sequence[PlanEvent], first: int, now: float) -> list[PlanEntry]:
    """Return events as entries of a log, all at one time."""
    return [PlanEntry(number, now, event) for number, event in enumerate(events, first)]


def build_missing_error(plan_id: str) -> NotFound:
    """Return the error for a plan that is not there."""
    return NotFound(f"There is no plan {plan_id[:100]!r}.")


def build_lost_error(plan_id: str) -> LeaseLost:
    """Return the error for a plan that another server carries out."""
    return LeaseLost(f"Another server carries out the plan {plan_id[:100]!r}.")


def build_gap_error(plan_id: str) -> StoreFailed:
    """Return the error for an event whose predecessor is not stored."""
    return StoreFailed(
        f"An earlier event of the plan {plan_id[:100]!r} could not be stored.", public=PUBLIC
    )


def build_closed_error() -> StoreFailed:
    """Return the error for what is stored after the log was closed."""
    return StoreFailed("The plans are closed: the server ends.", public=PUBLIC)


PUBLIC = "The plans cannot be used."
"""What clients get in place of a message with an address."""
