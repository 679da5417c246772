"""Limits of users, tenants and API keys on requests, runs, tokens and cost."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from math import ceil
from typing import Any, Literal, NamedTuple, NoReturn
from weakref import WeakValueDictionary

from copilot_runtime.api.budget import Budget, Limit
from copilot_runtime.api.identity import Identity
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.outages import LogRateLimit
from copilot_runtime.extensions.access.limits.counters import (
    Counters,
    CountersFailed,
    MemoryCounters,
    Place,
)
from copilot_runtime.extensions.access.limits.leases import LEASE_SECONDS, Leases, Throttle
from copilot_runtime.extensions.access.settings import LimitSettings, parse_rate
from copilot_runtime.security.addresses import find_network
from copilot_runtime.security.quota import QuotaExceeded

logger = logging.getLogger(__name__)

Kind = Literal["requests", "runs", "tokens", "dollars"]
Spent = Literal["tokens", "dollars"]
Level = Literal["user", "tenant", "key"]

_KINDS: Sequence[Kind] = ("requests", "runs", "tokens", "dollars")
_SPENT: Sequence[Spent] = ("tokens", "dollars")
"""The kinds that are counted at the end of each request to a model."""
_LEVELS: Sequence[Level] = ("user", "tenant", "key")
_MICRO = 1_000_000
"""Cost is counted in millionths of a dollar, as counters are integers."""
_MOST_CONTINUATIONS = 20
"""Continuations per allowed run: limited, because the client decides that a run is one."""
_RUN_RETRY = 5.0
"""The `retry_after` of exceeded concurrency limits, a guess."""


class Subject(NamedTuple):
    """A user, tenant or key whose limits apply."""

    level: Level
    name: str


class Rule(NamedTuple):
    """A maximum amount per window; `text` is the rate in the settings."""

    amount: float
    seconds: int
    text: str


class LimitStatus(NamedTuple):
    """The usage of a limit, whose window has `seconds`.

    For `runs_at_once`, `used` is the number of current runs, and for `storage`, of bytes; `seconds`
    and `seconds_left` are 0.
    """

    level: Level
    kind: str
    used: float
    limit: float
    seconds: int
    seconds_left: float


class Limiter:
    """Enforces the limits of the settings, with the given counters.

    While the counters fail, nothing is limited, and an error is logged (fail open): an outage of
    Redis must not become an outage of the service.
    """

    def __init__(
        self,
        settings: LimitSettings,
        counters: Counters | None = None,
        admit_storage: Callable[..., Awaitable[Callable[[], None]]] | None = None,
        *,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._counters = counters or MemoryCounters()
        self._admit_storage = admit_storage
        self._leases = Leases(self._counters, self._warn, lease_seconds)
        self._rules: dict[tuple[Kind, Level], Sequence[Rule]] = {}
        for kind in _KINDS:
            for level in _LEVELS:
                texts: Sequence[str] = getattr(settings, f"{kind}_per_{level}")
                if texts:
                    self._rules[kind, level] = _build_rules(texts)
        self._at_once: dict[Level, int] = {
            level: most
            for level in _LEVELS
            if (most := getattr(settings, f"runs_at_once_per_{level}"))
        }
        self._throttle = Throttle()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._quotas = WeakValueDictionary[str, Quota]()
        self._log_limit = LogRateLimit()

    @property
    def has_budgets(self) -> bool:
        """`True` if there is a limit on tokens, cost or storage."""
        return any(kind in _SPENT for kind, _ in self._rules) or self._admit_storage is not None

    @property
    def counts_dollars(self) -> bool:
        """`True` if there is a limit on cost, which needs prices."""
        return any(kind == "dollars" for kind, _ in self._rules)

    @property
    def has_limits(self) -> bool:
        """`True` if there is any limit."""
        return bool(self._rules or self._at_once or self._admit_storage)

    async def check_request(self, identity: Identity) -> None:
        """Count a request. Raises `QuotaExceeded` beyond a limit, with a delay if that repeats."""
        for subject in find_subjects(identity, identity.owner):
            for rule in self._rules.get(("requests", subject.level), ()):
                count = await self._add(_name("requests", subject, rule), 1, rule.seconds)
                if count is not None and count[0] > rule.amount:
                    await self._refuse(
                        subject,
                        f"{_SUBJECTS[subject.level]} sent more than "
                        f"{_spell_amount(rule.amount, 'request')} in {_spell(rule.seconds)}. "
                        f"Please try again in {_spell(count[1])}.",
                        retry_after=count[1],
                        hint=f"The setting limits.requests_per_{subject.level} is {rule.text}.",
                    )

    async def admit_run(
        self, identity: Identity, owner: str | None, run: str, *, is_continuation: bool = False
    ) -> Callable[[], None]:
        """Acquire the slots of a run, and return a function that releases them.

        The run is counted unless it is a continuation. Raises `QuotaExceeded`.
        """
        subjects = [*find_subjects(identity, owner)]
        await self.open_budget(identity, owner).check()
        for subject in subjects if not is_continuation else ():
            await self._check_runs(subject)
        places: list[Place] = []
        release = self._build_release(places)
        try:
            full = await self._find_full(subjects, places, run)
            for subject in subjects if full is None else ():
                await self._count_run(subject, is_continuation=is_continuation)
        except BaseException:  # a cancelled request must not keep its slots
            release()
            raise
        if full is not None:
            release()
            most = self._at_once[full.level]
            await self._refuse(
                full,
                f"{_SUBJECTS[full.level]} {_count(most, 'answer')} under way, and no more "
                "are possible at one time. Please wait for one to end, or stop it.",
                retry_after=_RUN_RETRY,
                hint=f"The setting limits.runs_at_once_per_{full.level} is {most}.",
            )
        return release

    def hold_place(self, identity: Identity, owner: str | None, holder: str) -> Callable[[], None]:
        """Acquire slots even beyond the limit, and return a function that releases them."""
        places = [
            Place(_name_places(subject), holder)
            for subject in find_subjects(identity, owner)
            if subject.level in self._at_once
        ]
        for place in places:
            self._leases.hold(place)
        return self._build_release(places)

    async def _check_runs(self, subject: Subject) -> None:
        """Raise `QuotaExceeded` if a limit on runs is used up, before any limit counts the run."""
        for rule in self._rules.get(("runs", subject.level), ()):
            count, left = await self.read(_name("runs", subject, rule))
            if count >= rule.amount:
                await self._refuse_run(subject, rule, left)

    async def _count_run(self, subject: Subject, *, is_continuation: bool) -> None:
        kind, most = ("continuations", _MOST_CONTINUATIONS) if is_continuation else ("runs", 1)
        for rule in self._rules.get(("runs", subject.level), ()):
            count = await self._add(_name(kind, subject, rule), 1, rule.seconds)
            if count is not None and count[0] > most * rule.amount:
                await self._refuse_run(subject, rule, count[1])

    async def _refuse_run(self, subject: Subject, rule: Rule, left: float) -> NoReturn:
        await self._refuse(
            subject,
            f"{_SUBJECTS[subject.level]} asked {_spell_amount(rule.amount, 'question')} in "
            f"{_spell(rule.seconds)}, and no more are possible. "
            f"Please try again in {_spell(left)}.",
            retry_after=left,
            hint=f"The setting limits.runs_per_{subject.level} is {rule.text}.",
        )

    def open_budget(
        self, identity: Identity, owner: str | None, parent: Budget | None = None
    ) -> Budget:
        """Return a budget with the limits of a caller on tokens, cost and storage."""
        limits = (
            self._find_quota(kind, subject, rule)
            for subject in find_subjects(identity, owner)
            for kind in _SPENT
            for rule in self._rules.get((kind, subject.level), ())
        )
        reserve = self._admit_storage and partial(self._admit_storage, identity, owner)
        return Budget([*limits], parent=parent, reserve_storage=reserve)

    def _find_quota(self, kind: Spent, subject: Subject, rule: Rule) -> "Quota":
        """Return the quota of a rule, of which all runs in this process use the same."""
        name = _name(kind, subject, rule)
        if (quota := self._quotas.get(name)) is None:
            quota = self._quotas[name] = Quota(self, kind, subject, rule)
        return quota

    async def read(self, name: str) -> tuple[int, float]:
        """Return the amount in a window, and the seconds until it ends."""
        try:
            return await self._counters.read(name)
        except CountersFailed as error:
            self._warn(error)
            return 0, 0.0

    async def add_amount(self, name: str, amount: int, seconds: int) -> int:
        """Add an amount to a window and return its new amount, even if the caller is cancelled."""
        task = asyncio.create_task(self._add(name, amount, seconds), name="count usage")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        count = await asyncio.shield(task)
        return amount if count is None else count[0]

    async def list_statuses(self, identity: Identity, owner: str | None) -> Sequence[LimitStatus]:
        """Return the usage of each limit of a caller."""
        found: list[LimitStatus] = []
        for subject in find_subjects(identity, owner):
            for kind in _KINDS:
                for rule in self._rules.get((kind, subject.level), ()):
                    amount, left = await self.read(_name(kind, subject, rule))
                    used = amount / _MICRO if kind == "dollars" else amount
                    limit = (rule.amount, rule.seconds)
                    found.append(LimitStatus(subject.level, kind, used, *limit, left))
            if (most := self._at_once.get(subject.level)) is not None:
                runs = await self._count_places(subject)
                found.append(LimitStatus(subject.level, "runs_at_once", runs, most, 0, 0.0))
        return found

    async def aclose(self) -> None:
        """Release all slots. The counters stay open."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._leases.aclose()

    async def _find_full(
        self, subjects: Sequence[Subject], places: list[Place], run: str
    ) -> Subject | None:
        """Acquire a slot of each subject and add it to `places`; return the first full subject."""
        for subject in subjects:
            if (most := self._at_once.get(subject.level)) is None:
                continue
            places.append(Place(_name_places(subject), run))
            if not await self._leases.take(places[-1], most):
                return subject
        return None

    async def hold_back(self, subject: Subject, error: CopilotError) -> None:
        """Wait before a refusal is raised, if the subject is refused repeatedly."""
        name = f"{subject.level}:{subject.name}"
        await self._throttle.hold_back(name, f"{error.message} {error.hint}")

    async def _refuse(
        self, subject: Subject, message: str, *, retry_after: float, hint: str
    ) -> NoReturn:
        error = QuotaExceeded(message, retry_after=retry_after, hint=hint)
        await self.hold_back(subject, error)
        raise error

    def _build_release(self, places: Sequence[Place]) -> Callable[[], None]:
        def release() -> None:
            for place in places:
                self._leases.give_back(place)

        return release

    async def _add(self, name: str, amount: int, seconds: int) -> tuple[int, float] | None:
        try:
            return await self._counters.add(name, amount, seconds)
        except CountersFailed as error:
            self._warn(error)
            return None

    async def _count_places(self, subject: Subject) -> int:
        try:
            return await self._counters.count_places(_name_places(subject))
        except CountersFailed as error:
            self._warn(error)
            return 0

    def _warn(self, error: CountersFailed) -> None:
        if self._log_limit.allows_line():
            logger.error("Limits cannot be counted and are not enforced: %s", error)


class Quota(Limit):
    """The quota of a subject of tokens or dollars in a window, counted with other processes."""

    def __init__(self, limiter: Limiter, kind: Spent, subject: Subject, rule: Rule) -> None:
        super().__init__(kind, rule.amount, self._build_quota_error)
        self._limiter = limiter
        self._subject = subject
        self._rule = rule
        self._name = _name(kind, subject, rule)
        self._unit = _MICRO if kind == "dollars" else 1
        self._seconds_left = 0.0

    async def refresh(self) -> None:
        amount, self._seconds_left = await self._limiter.read(self._name)
        self._amount = amount / self._unit

    async def add(self, amount: float) -> None:
        units = ceil(Decimal(str(amount)) * self._unit)
        count = await self._limiter.add_amount(self._name, units, self._rule.seconds)
        self._amount = count / self._unit

    async def explain(self) -> CopilotError:
        error = await super().explain()
        await self._limiter.hold_back(self._subject, error)
        return error

    def _build_quota_error(self, _used: float) -> QuotaExceeded:
        level, rule = self._subject.level, self._rule
        what = "token" if self.kind == "tokens" else "US dollar"
        return QuotaExceeded(
            f"{_SUBJECTS[level]} used up {_spell_amount(rule.amount, what)} in "
            f"{_spell(rule.seconds)}. Please try again in {_spell(self._seconds_left)}.",
            retry_after=self._seconds_left,
            hint=f"The setting limits.{self.kind}_per_{level} is {rule.text}.",
        )


_SUBJECTS = {
    "user": "You have",
    "tenant": "Your organization has",
    "key": "This API key has",
}


def find_subjects(identity: Identity, owner: str | None) -> Iterator[Subject]:
    """Yield the subjects whose limits apply to a caller; an anonymous one is its address."""
    name = f"owner:{owner}" if owner is not None else f"address:{find_network(identity.address)}"
    yield Subject("user", name)
    if identity.tenant:
        yield Subject("tenant", identity.tenant)
    if identity.key:
        yield Subject("key", identity.key)


def _build_rules(texts: Sequence[str]) -> Sequence[Rule]:
    """Return the rules of rates; of several with the same window, only the strictest."""
    found: dict[int, Rule] = {}
    for rule in (Rule(*parse_rate(text), text) for text in texts):
        if rule.seconds not in found or rule.amount < found[rule.seconds].amount:
            found[rule.seconds] = rule
    return [*found.values()]


def _name(kind: str, subject: Subject, rule: Rule) -> str:
    return f"{kind}:{rule.seconds}:{subject.level}:{subject.name}"


def _name_places(subject: Subject) -> str:
    return f"runs:{subject.level}:{subject.name}"


def _spell(seconds: float) -> str:
    """Return a duration in words, such as `2 minutes`."""
    for unit, name in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= unit and (seconds >= 2 * unit or seconds % unit == 0):
            return _count(ceil(seconds / unit), name)
    return _count(max(1, ceil(seconds)), "second")


def _spell_amount(amount: float, name: str) -> str:
    """Return an amount in words: `2,000,000 tokens`, `0.01 US dollars`."""
    digits = f"{amount:,.6f}".rstrip("0").rstrip(".")
    return f"{digits} {name}{'' if amount == 1 else 's'}"


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"
