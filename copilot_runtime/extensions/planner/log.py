"""The store of plans: their events, and the lease of the server that runs each plan."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import inf
from time import time
from typing import Any

from copilot_runtime.base.errors import CopilotError, NotFound, StoreFailed
from copilot_runtime.extensions.planner.events import (
    PlanEntry,
    PlanEvent,
    QuestionAnswered,
    StopRequested,
    decode_event,
)
from copilot_runtime.extensions.planner.plan import FINAL_STATUSES, Status
from copilot_runtime.threads.store import ThreadKey

MAX_DELETIONS = 100
"""Maximum plans that are deleted in one transaction."""


class LeaseLost(CopilotError):
    """Another server has taken the plan over, as it considered this one dead."""

    code = "CONFLICT"
    status_code = 409
    visibility = "silent"
    severity = "info"


@dataclass(frozen=True, slots=True)
class Lease:
    """The exclusive right to run a plan. The epoch increases with each takeover (fencing token)."""

    plan_id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSummary:
    """The summary of a plan in lists. Times are seconds since 1970."""

    id: str
    user: str | None
    thread_id: str
    created_at: float
    updated_at: float
    status: Status
    title: str

    @property
    def is_over(self) -> bool:
        """`True` if the plan has ended; a retry reopens it."""
        return self.status in FINAL_STATUSES

    @property
    def sort_key(self) -> tuple[float, str]:
        """The position in lists."""
        return self.created_at, self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanQuery:
    """The filter, position and size of a page of plans."""

    user: str | None = None
    """Only plans of this user; `None` means plans without a user."""
    all_users: bool = False
    """`True` if `user` is ignored."""
    thread_id: str | None = None
    status: Status | None = None
    before: tuple[float, str] | None = None
    """Only plans after this `sort_key` in the list, which is descending."""
    limit: int = 50

    def matches(self, summary: PlanSummary) -> bool:
        """Return `True` if a plan matches the filter."""
        return (
            (self.all_users or summary.user == self.user)
            and self.thread_id in (None, summary.thread_id)
            and self.status in (None, summary.status)
            and (self.before is None or summary.sort_key < self.before)
        )


@dataclass(frozen=True, slots=True)
class PlanCommand:
    """A command for a plan, to be carried out by the server that runs it."""

    id: int
    plan_id: str
    event: StopRequested | QuestionAnswered


class PlanLog(ABC):
    """The events of plans, in order. Once the future of `append` is done, they survive a crash.

    All methods raise `StoreFailed` if the store is not available.
    """

    @abstractmethod
    async def open(self) -> None:
        """Open the store; no effect if it is open."""

    @abstractmethod
    async def create(
        self, summary: PlanSummary, events: Sequence[PlanEvent]
    ) -> tuple[Lease, Sequence[PlanEntry]]:
        """Store a new plan with its first events; this server gets its lease."""

    @abstractmethod
    def append(
        self,
        lease: Lease,
        number: int,
        events: Sequence[PlanEvent],
        *,
        status: Status | None = None,
    ) -> "asyncio.Future[Sequence[PlanEntry]]":
        """Store the next events, numbered from `number`, and the plan's new status if given.

        The future has their entries, or raises `LeaseLost`.
        """

    @abstractmethod
    async def read(self, plan_id: str, after: int = 0) -> Sequence[PlanEntry]:
        """Return the entries of a plan after a number. Raises `NotFound`."""

    @abstractmethod
    async def list_plans(self, query: PlanQuery) -> Sequence[PlanSummary]:
        """Return plans in descending order of creation time, then id."""

    @abstractmethod
    async def find(self, plan_id: str) -> PlanSummary:
        """Return the summary of a plan. Raises `NotFound`."""

    @abstractmethod
    async def claim(self) -> Sequence[Lease]:
        """Take over all running plans whose server is dead."""

    @abstractmethod
    async def claim_plan(
        self, plan_id: str, number: int, events: Sequence[PlanEvent]
    ) -> tuple[Lease, Sequence[PlanEntry]]:
        """Take the lease of an ended plan, and store the events that reopen it.

        Pending commands for it are dropped. Raises `NotFound`, or `LeaseLost` if another server
        was faster.
        """

    @abstractmethod
    async def renew(self, lease: Lease) -> Lease:
        """Return a new lease of a plan of this server; writes with the old one are refused.

        Raises `LeaseLost`.
        """

    async def find_stale(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Return the leases whose plans another server has taken over."""
        del leases
        return ()

    async def check_lease(self, lease: Lease) -> None:
        """Raise `LeaseLost` if another server has taken the plan over by now."""
        if await self.find_stale([lease]):
            raise build_lost_error(lease.plan_id)

    async def delete_plans(self, *, before: float = inf, thread: ThreadKey | None = None) -> int:
        """Delete a batch of ended plans, and return its size; 0 if none is left.

        Only plans without an event since `before`, and of `thread` if given, are deleted.
        """
        del before, thread
        return 0

    @abstractmethod
    async def add_command(self, plan_id: str, event: StopRequested | QuestionAnswered) -> None:
        """Store a command for the server that runs the plan."""

    @abstractmethod
    async def read_commands(self) -> Sequence[PlanCommand]:
        """Return the commands for plans of this server, oldest first."""

    @abstractmethod
    async def remove_command(self, id: int) -> None:
        """Delete a command that was carried out."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the store; other servers may take over this server's plans at once."""


class MemoryPlanLog(PlanLog):
    """Plans in memory, which are lost when the process ends.

    Beyond `max_plans`, the oldest ended plans are deleted.
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
        return sorted(found, key=lambda summary: summary.sort_key, reverse=True)[: query.limit]

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

    async def add_command(self, plan_id: str, event: StopRequested | QuestionAnswered) -> None:
        id = next(self._command_ids)
        self._commands[id] = PlanCommand(id, plan_id, event)

    async def read_commands(self) -> Sequence[PlanCommand]:
        return [*self._commands.values()]

    async def remove_command(self, id: int) -> None:
        self._commands.pop(id, None)

    async def aclose(self) -> None:
        """Do nothing."""


def decode_summary(row: Iterable[Any]) -> PlanSummary:
    """Return the summary in a row of a database."""
    id, user, thread_id, created, updated, status, title = row
    return PlanSummary(
        id=id,
        user=user,
        thread_id=thread_id,
        created_at=created,
        updated_at=updated,
        status=status,
        title=title,
    )


def decode_command(row: Iterable[Any]) -> PlanCommand:
    """Return the command in a row of a database."""
    id, plan_id, data = row
    event = decode_event(data)
    assert isinstance(event, StopRequested | QuestionAnswered)
    return PlanCommand(id, plan_id, event)


def build_conditions(query: PlanQuery, is_user: str) -> tuple[str, Sequence[Any]]:
    """Return the WHERE condition of a query, and its parameters.

    `is_user` is the condition for plans of a user, who may be NULL.
    """
    parts: list[tuple[str, tuple[Any, ...]]] = [("TRUE", ())]
    if not query.all_users:
        parts.append((is_user, (query.user,)))
    if query.thread_id is not None:
        parts.append(("thread = ?", (query.thread_id,)))
    if query.status is not None:
        parts.append(("status = ?", (query.status,)))
    if query.before is not None:
        parts.append(("(created, id) < (?, ?)", query.before))
    values = [value for _, of in parts for value in of]
    return " AND ".join(condition for condition, _ in parts), values


def number_events(events: Sequence[PlanEvent], first: int, now: float) -> list[PlanEntry]:
    """Return consecutive entries for events, all with the same time."""
    return [PlanEntry(number, now, event) for number, event in enumerate(events, first)]


def build_missing_error(plan_id: str) -> NotFound:
    """Return the error for a plan that does not exist."""
    return NotFound(f"There is no plan {plan_id[:100]!r}.")


def build_lost_error(plan_id: str) -> LeaseLost:
    """Return the error for a plan that another server runs."""
    return LeaseLost(f"Another server carries out the plan {plan_id[:100]!r}.")


def build_gap_error(plan_id: str) -> StoreFailed:
    """Return the error for an event whose predecessor could not be stored."""
    return StoreFailed(
        f"An earlier event of the plan {plan_id[:100]!r} could not be stored.", public=PUBLIC
    )


def build_closed_error() -> StoreFailed:
    """Return the error for a write after the log was closed."""
    return StoreFailed("The plans are closed: the server ends.", public=PUBLIC)


PUBLIC = "The plans cannot be used."
"""The message for clients, instead of one with the store's address."""
