"""Limits of users, tenants and API keys: checked before, counted after."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from decimal import Decimal
from math import ceil
from typing import Any, Literal, NamedTuple, NoReturn

from copilot_runtime.concurrency import retrieve_exception
from copilot_runtime.config.limits import LimitSettings, parse_rate
from copilot_runtime.errors import LimitExceeded
from copilot_runtime.events import Usage
from copilot_runtime.identity import Identity, split_owner
from copilot_runtime.security.addresses import find_network
from copilot_runtime.security.limits.counters import Counters, CountersFailed, MemoryCounters
from copilot_runtime.security.limits.throttle import Throttle

logger = logging.getLogger(__name__)

Kind = Literal["requests", "tokens", "dollars"]
Level = Literal["user", "tenant", "key"]

_LEVELS: Sequence[Level] = ("user", "tenant", "key")
_MICRO = 1_000_000
"""Money is counted in millionths of a dollar: counters have whole numbers."""
_RUN_RETRY = 5.0
"""Seconds after which a place may be free; nobody knows."""
_LOG_EVERY = 60.0

Price = Callable[[Usage], Awaitable[Decimal | None]]
"""Returns what a model's answer has cost in US dollars, if that is known."""


class TooMuch(LimitExceeded):
    """Somebody has asked too often, or for too much. `retry_after` is in seconds."""

    status_code = 429
    error_type = "RATE_LIMITED"

    def __init__(self, message: str, *, retry_after: float, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = max(1, ceil(retry_after))


class Subject(NamedTuple):
    """Whose limits count: a user, a tenant, or a key, by its name."""

    level: Level
    name: str


class Rule(NamedTuple):
    """So much of something in so many seconds."""

    amount: float
    seconds: int
    text: str


class Standing(NamedTuple):
    """How much somebody has used of a limit."""

    level: Level
    kind: str
    used: float
    limit: float
    seconds_left: float


class Limiter:
    """Knows the limits of the settings, and counts by `counters`.

    If nothing can be counted, everybody may go on, and the log says so: limits protect from too
    much, and an outage of Redis is not too much.
    """

    def __init__(
        self,
        settings: LimitSettings,
        counters: Counters | None = None,
        *,
        price: Price | None = None,
        run_seconds: float = 600.0,
    ) -> None:
        self._counters = counters or MemoryCounters()
        self._price = price
        self._run_seconds = run_seconds
        self._rules: dict[tuple[Kind, Level], Sequence[Rule]] = {}
        for kind in ("requests", "tokens", "dollars"):
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
        self._tasks: set[asyncio.Task[None]] = set()
        self._warned_at = float("-inf")

    @property
    def limits_requests(self) -> bool:
        """Whether requests are limited at all."""
        return any(kind == "requests" for kind, _ in self._rules)

    @property
    def counts_tokens(self) -> bool:
        """Whether it matters what a run has used."""
        return any(kind != "requests" for kind, _ in self._rules)

    @property
    def counts_dollars(self) -> bool:
        """Whether prices have to be known."""
        return any(kind == "dollars" for kind, _ in self._rules)

    @property
    def has_limits(self) -> bool:
        """Whether anything is limited."""
        return bool(self._rules or self._at_once)

    async def check_request(self, identity: Identity) -> None:
        """Count a request. Raises `TooMuch` for one too many, and later if many follow."""
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
        self, identity: Identity, owner: str | None, run: str
    ) -> Callable[[], None]:
        """Take a place for a run, and return what gives it back. Raises `TooMuch`."""
        subjects = [*find_subjects(identity, owner)]
        for subject in subjects:
            await self._check_spent(subject)
        places: list[str] = []
        release = self._build_release(places, run)
        for subject in subjects:
            if (most := self._at_once.get(subject.level)) is None:
                continue
            place = f"runs:{subject.level}:{subject.name}"
            if not await self._enter(place, run, most):
                release()
                await self._refuse(
                    subject,
                    f"{_SUBJECTS[subject.level]} {_count(most, 'answer')} under way, and no more "
                    "are possible at one time. Please wait for one to end, or stop it.",
                    retry_after=_RUN_RETRY,
                    hint=f"The setting limits.runs_at_once_per_{subject.level} is {most}.",
                )
            places.append(place)
        return release

    async def count_usage(
        self, identity: Identity, owner: str | None, usages: Sequence[Usage]
    ) -> None:
        """Count what a run has used: by then it has ended, and crosses a limit at most once."""
        tokens = sum((usage.input_tokens or 0) + (usage.output_tokens or 0) for usage in usages)
        dollars = Decimal(0)
        if self._price is not None and self.counts_dollars:
            for usage in usages:
                dollars += await self._price(usage) or Decimal(0)
        await self._count(identity, owner, tokens, dollars)

    def count_soon(self, owner: str | None, tokens: int, dollars: float) -> None:
        """Count what was used for somebody beside their runs."""
        tenant, _ = split_owner(owner)
        work = self._count(Identity(tenant=tenant), owner, tokens, Decimal(str(dollars)))
        self._spawn(work, "count usage")

    async def _count(
        self, identity: Identity, owner: str | None, tokens: int, dollars: Decimal
    ) -> None:
        amounts: dict[Kind, int] = {"tokens": tokens, "dollars": ceil(dollars * _MICRO)}
        for subject in find_subjects(identity, owner):
            for kind, amount in amounts.items():
                for rule in self._rules.get((kind, subject.level), ()):
                    if amount:
                        await self._add(_name(kind, subject, rule), amount, rule.seconds)

    async def list_standings(self, identity: Identity, owner: str | None) -> Sequence[Standing]:
        """Return how much somebody has used of each of their limits."""
        found: list[Standing] = []
        for subject in find_subjects(identity, owner):
            for kind in ("requests", "tokens", "dollars"):
                for rule in self._rules.get((kind, subject.level), ()):
                    amount, left = await self._read(_name(kind, subject, rule))
                    used = amount / _MICRO if kind == "dollars" else amount
                    found.append(Standing(subject.level, kind, used, rule.amount, left))
        return found

    async def aclose(self) -> None:
        """Give all places back. The counters are closed by whoever made them."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _check_spent(self, subject: Subject) -> None:
        for kind in ("tokens", "dollars"):
            for rule in self._rules.get((kind, subject.level), ()):
                amount, left = await self._read(_name(kind, subject, rule))
                used = amount / _MICRO if kind == "dollars" else amount
                if used < rule.amount:
                    continue
                what = "token" if kind == "tokens" else "US dollar"
                await self._refuse(
                    subject,
                    f"{_SUBJECTS[subject.level]} used up {_spell_amount(rule.amount, what)} in "
                    f"{_spell(rule.seconds)}. Please try again in {_spell(left)}.",
                    retry_after=left,
                    hint=f"The setting limits.{kind}_per_{subject.level} is {rule.text}.",
                )

    async def _refuse(
        self, subject: Subject, message: str, *, retry_after: float, hint: str
    ) -> NoReturn:
        """Raise `TooMuch`, and later if many follow: refusals cost others their time, too."""
        name = f"{subject.level}:{subject.name}"
        await self._throttle.hold_back(name, f"{message} {hint}")
        raise TooMuch(message, retry_after=retry_after, hint=hint)

    def _build_release(self, places: Sequence[str], run: str) -> Callable[[], None]:
        def release() -> None:
            for place in places:
                self._spawn(self._leave(place, run), f"leave:{place}")

        return release

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(retrieve_exception)

    async def _add(self, name: str, amount: int, seconds: int) -> tuple[int, float] | None:
        try:
            return await self._counters.add(name, amount, seconds)
        except CountersFailed as error:
            self._warn(error)
            return None

    async def _read(self, name: str) -> tuple[int, float]:
        try:
            return await self._counters.read(name)
        except CountersFailed as error:
            self._warn(error)
            return 0, 0.0

    async def _enter(self, place: str, run: str, most: int) -> bool:
        try:
            return await self._counters.enter(place, run, most, 2 * self._run_seconds)
        except CountersFailed as error:
            self._warn(error)
            return True

    async def _leave(self, place: str, run: str) -> None:
        try:
            await self._counters.leave(place, run)
        except CountersFailed as error:
            self._warn(error)

    def _warn(self, error: CountersFailed) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._warned_at + _LOG_EVERY:
            self._warned_at = now
            logger.error("Limits are not counted, so that nobody is limited: %s", error)


_SUBJECTS = {
    "user": "You have",
    "tenant": "Your organization has",
    "key": "This API key has",
}


def find_subjects(identity: Identity, owner: str | None) -> Iterator[Subject]:
    """Yield whose limits count for somebody; for nobody, it is their address."""
    name = f"owner:{owner}" if owner is not None else f"address:{find_network(identity.address)}"
    yield Subject("user", name)
    if identity.tenant:
        yield Subject("tenant", identity.tenant)
    if identity.key:
        yield Subject("key", identity.key)


def _build_rules(texts: Sequence[str]) -> Sequence[Rule]:
    """Return the rules of rates. Of several for the same time, which is counted once, the least."""
    found: dict[int, Rule] = {}
    for rule in (Rule(*parse_rate(text), text) for text in texts):
        if rule.seconds not in found or rule.amount < found[rule.seconds].amount:
            found[rule.seconds] = rule
    return [*found.values()]


def _name(kind: str, subject: Subject, rule: Rule) -> str:
    return f"{kind}:{rule.seconds}:{subject.level}:{subject.name}"


def _spell(seconds: float) -> str:
    """Return a time in words: of a window, or until it ends."""
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
