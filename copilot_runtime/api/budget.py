"""The budget of a run: limits on all that it and its sub-agents, tasks and retries may use."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Literal, NamedTuple

from copilot_runtime.api.events import Usage
from copilot_runtime.base.errors import CopilotError

Kind = Literal["requests", "tokens", "dollars", "calls", "seconds"]
_COSTS: Sequence[Kind] = ("requests", "tokens", "dollars")
"""The kinds that requests to models use."""

_PATIENCE = 30.0
"""Maximum seconds for which a request waits for others, one of which may wait for it."""


class Cost(NamedTuple):
    """The cost of a request to a model."""

    tokens: int = 0
    dollars: float = 0.0
    requests: int = 1
    unpriced: str = ""
    """A model whose price is unknown, so that `dollars` lacks it; else empty."""

    def get(self, kind: Kind) -> float:
        """Return the amount of one kind; 0 for kinds that requests do not use."""
        if kind == "requests":
            return self.requests
        if kind == "tokens":
            return self.tokens
        return self.dollars if kind == "dollars" else 0


class Reservation(NamedTuple):
    """An amount that a task has reserved."""

    amount: float
    task: "asyncio.Task[object] | None"


Record = Callable[[Cost], Awaitable[None]]
"""Stores the cost of a request that has ended."""

ReserveStorage = Callable[[int], Awaitable[Callable[[], None]]]
"""Reserves so many bytes, and returns the function to call once they are stored.

Raises an error if the caller may store no more.
"""


class Limit:
    """The maximum amount of one kind, and how much of it is used, and reserved for now.

    Args:
        kind: The kind of amounts.
        most: The maximum. An amount is allowed while less than that is used.
        build_error: Returns the error, which names the setting, for the used amount.
        read: Returns the used amount if something else counts it, such as a clock.
    """

    def __init__(
        self,
        kind: Kind,
        most: float,
        build_error: Callable[[float], CopilotError],
        *,
        read: Callable[[], float] | None = None,
    ) -> None:
        self.kind: Kind = kind
        self.most = most
        self._build_error = build_error
        self._read = read
        self._amount = 0.0
        self._reserved: list[Reservation] = []
        self._last = 0.0
        """The amount of the request that ended last, which the next one probably needs."""
        self._release = asyncio.Event()

    @property
    def amount(self) -> float:
        """The used amount, as far as this process knows."""
        return self._amount if self._read is None else self._read()

    async def refresh(self) -> None:
        """Read the used amount anew, if other processes count as well."""

    async def add(self, amount: float) -> None:
        """Add a used amount, unless something else counts it."""
        self._amount += amount

    async def check(self) -> None:
        """Raise the error of the limit if it is reached."""
        if self.amount >= self.most:
            raise await self.explain()

    async def explain(self) -> CopilotError:
        """Return the error of the limit, perhaps only after a while."""
        return self._build_error(self.amount)

    def fits(self, amount: float) -> bool:
        """Return whether an amount fits beside the reserved ones; alone, each fits.

        A task that has reserved an amount itself would wait for itself, such as a stage that asks
        a model about each piece of an answer.
        """
        task = asyncio.current_task()
        if not self._reserved or any(one.task is task for one in self._reserved):
            return True
        reserved = sum(one.amount for one in self._reserved)
        return self.amount + reserved + max(amount, self._last) <= self.most

    def reserve(self, amount: float) -> Reservation:
        """Reserve an amount, or that of the last request if it is larger."""
        reservation = Reservation(max(amount, self._last), asyncio.current_task())
        self._reserved.append(reservation)
        return reservation

    def release(self, reservation: Reservation, used: float) -> None:
        """Release a reserved amount, of which `used` was used."""
        self._reserved.remove(reservation)
        self._last = used or self._last
        self._release.set()
        self._release = asyncio.Event()

    async def wait_for_release(self, seconds: float) -> None:
        """Wait until an amount is released, at most for some seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._release.wait(), seconds)


class Budget:
    """The limits of a run, in `RunInput.budget`. Those of its parents are among them.

    Each request to a model is reserved before, and settled after. One that does not fit beside
    those under way waits for them; none begins once a limit is reached. So a limit is exceeded by
    at most one request, or one of each concurrent branch whose requests grow.

    Args:
        limits: The limits, besides those of the parent.
        parent: The budget of the run that this one is a part of.
        depth: How many agents have delegated, each to the next one.
        record: Called with the cost of each request that has ended.
        reserve_storage: Reserves bytes of the caller's storage, if that is limited.
    """

    def __init__(
        self,
        limits: Sequence[Limit] = (),
        *,
        parent: "Budget | None" = None,
        depth: int = 0,
        record: Record | None = None,
        reserve_storage: ReserveStorage | None = None,
    ) -> None:
        self.parent = parent
        self.reserve_storage = reserve_storage or (parent.reserve_storage if parent else None)
        self.depth = depth
        self.limits: Sequence[Limit] = (*(parent.limits if parent else ()), *limits)
        self.records: Sequence[Record] = parent.records if parent else ()
        if record is not None:
            self.records = (*self.records, record)
        self._costs = [limit for limit in self.limits if limit.kind in _COSTS]
        self.counts_usage = bool(self.records) or self.counts("tokens", "dollars")
        """Whether the tokens of a request matter, and not only that it was sent."""
        self._settled: list[Usage] | None = None

    def counts(self, *kinds: Kind) -> bool:
        """Return whether there is a limit of one of these kinds."""
        return any(limit.kind in kinds for limit in self.limits)

    def get_rest(self, kind: Kind) -> float:
        """Return how much of one kind is left, as far as this process knows; inf without limit."""
        left = (limit.most - limit.amount for limit in self.limits if limit.kind == kind)
        return min(left, default=inf)

    def delegate(self) -> "Budget":
        """Return the budget of a sub-agent: the same limits, one level deeper."""
        return Budget(parent=self, depth=self.depth + 1)

    async def check(self) -> None:
        """Raise the error of the first limit that is reached, except those of calls."""
        for limit in self.limits:
            if limit.kind != "calls":
                await limit.refresh()
                await limit.check()

    async def take_call(self) -> None:
        """Count a call of a tool. Raises the error of a limit of calls that is reached."""
        limits = [limit for limit in self.limits if limit.kind == "calls"]
        for limit in limits:
            await limit.check()
        for limit in limits:
            await limit.add(1)

    async def reserve(self, cost: Cost) -> Sequence[Reservation]:
        """Reserve the expected cost of a request, in the order of the limits.

        Waits while it does not fit beside other requests. Raises the error of a limit that is
        reached.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + _PATIENCE
        while True:
            await self.check()
            amounts = [(limit, cost.get(limit.kind)) for limit in self._costs]
            full = next((limit for limit, amount in amounts if not limit.fits(amount)), None)
            if full is None or (left := until - clock()) <= 0:
                return [limit.reserve(amount) for limit, amount in amounts]
            await full.wait_for_release(left)

    async def repeat_request(self) -> None:
        """Count a request that has failed and is sent again, as `max_retries` of adapters allow.

        Raises the error of a limit that is reached.
        """
        await self.settle(Cost())
        await self.check()

    async def settle(self, cost: Cost, reserved: Sequence[Reservation] = ()) -> None:
        """Count what a request has used, and release what `reserve` returned for it."""
        try:
            for limit in self._costs:
                if amount := cost.get(limit.kind):
                    await limit.add(amount)
            for record in self.records:
                await record(cost)
        finally:
            for limit, reservation in zip(self._costs, reserved, strict=False):
                limit.release(reservation, cost.get(limit.kind))

    def watch(self) -> None:
        """Remember from now on the usage of which requests is settled, for `forget`."""
        self._settled = []

    def remember(self, usage: Usage) -> None:
        """Remember in each watched budget, of this one and its parents, what is settled."""
        budget: Budget | None = self
        while budget is not None:
            if budget._settled is not None:
                budget._settled.append(usage)
            budget = budget.parent

    def forget(self, usage: Usage) -> bool:
        """Return whether the usage of an event was settled by its request, and forget that."""
        settled = self._settled or []
        for index, one in enumerate(settled):
            if one is usage:
                settled.pop(index)
                return True
        return False
