"""Limits of users and tenants on stored bytes."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import NamedTuple, Protocol

from copilot_runtime.api.identity import TENANT_PREFIX, Identity
from copilot_runtime.app.extension import Extension
from copilot_runtime.base.errors import CopilotError, LimitExceeded
from copilot_runtime.base.formatting import format_size
from copilot_runtime.base.outages import LogRateLimit
from copilot_runtime.extensions.access.limits.limiter import Level, LimitStatus
from copilot_runtime.extensions.access.settings import LimitSettings
from copilot_runtime.threads.store import ThreadStore

logger = logging.getLogger(__name__)

_COUNT_SECONDS = 60.0
"""Seconds for which a count below the limit is used again."""
_FULL_SECONDS = 1.0
"""Seconds for which a count beyond the limit is: its owner may have deleted something."""
_NEARLY = 0.8
_RESERVE = 0.1
"""How much more an answer that has begun may take, as a part of the limit."""
_MOST_COUNTS = 10_000


class StorageFull(LimitExceeded):
    """A user or a tenant stores as many bytes as the limit allows."""

    status_code = 507
    error_type = "STORAGE_FULL"


class Owners(NamedTuple):
    """A user, or all users of a tenant, whose owner keys have the prefix `key`."""

    level: Level
    key: str
    limit: int

    @property
    def name(self) -> str:
        """The level and the key, which no other owners have."""
        return f"{self.level}:{self.key}"


class StorageUse(NamedTuple):
    """The stored bytes by their noun, when they were counted, and how many seconds that took."""

    parts: Mapping[str, int]
    at: float
    seconds: float = 0.0

    @property
    def total(self) -> int:
        """The bytes of all nouns."""
        return sum(self.parts.values())


class Stores(Protocol):
    """Whatever stores data of users, such as `Core`."""

    @property
    def threads(self) -> ThreadStore: ...
    @property
    def extensions(self) -> Sequence[Extension]: ...


class StorageLimits:
    """Refuses runs and files of users who store too much; what deletes is never refused.

    Bytes are counted by their stores: once a minute, sooner if something was stored meanwhile, and
    at once where it might exceed the limit. Whoever is not signed in is one user. While a store
    cannot count, nothing is limited (fail open).
    """

    def __init__(
        self, settings: LimitSettings, stores: Stores, clock: Callable[[], float] = monotonic
    ) -> None:
        self._per_user = settings.storage_per_user
        self._per_tenant = settings.storage_per_tenant
        self._stores = stores
        self._clock = clock
        self._counts: dict[str, StorageUse] = {}
        self._pending = Counter[str]()
        """Bytes that are being stored, by owner."""
        self._added = Counter[str]()
        """Bytes that were stored since the last count; an owner of 0 has stored something else."""
        self._warned: set[str] = set()
        self._notices: dict[str, str] = {}
        self._log_limit = LogRateLimit()

    async def admit(
        self,
        identity: Identity,
        owner: str | None,
        size: int = 0,
        *,
        is_continuation: bool = False,
    ) -> Callable[[], None]:
        """Reserve `size` bytes, and return the function to call once they are stored.

        Raises `StorageFull` if this caller may store no more.
        """
        names: list[str] = []

        def release() -> None:
            for name in names:
                self._pending[name] -= size
                self._added[name] += size
            self._pending = +self._pending

        try:
            for owners in self._list_owners(identity, owner):
                most = owners.limit * (1 + _RESERVE) if is_continuation else owners.limit
                await self._check(owners, most)
                names.append(owners.name)
                self._pending[owners.name] += size
        except BaseException:  # also a cancelled request must not keep what it reserved
            release()
            raise
        return release

    async def _check(self, owners: Owners, most: float) -> None:
        use = await self._count(owners)
        is_old = owners.name in self._added or self._clock() > use.at + _FULL_SECONDS
        if self._estimate(owners, use) >= most and is_old:
            use = await self._count(owners, again=True)
        self._note(owners, use)
        if self._estimate(owners, use) >= most:
            coming = self._estimate(owners, use) - use.total
            raise StorageFull(
                f"{_describe(owners, use, coming)} Delete conversations that you no longer need, "
                "and then go on.",
                hint=f"The setting limits.storage_per_{owners.level} is {owners.limit}.",
            )

    def _estimate(self, owners: Owners, use: StorageUse) -> int:
        return use.total + self._pending[owners.name] + self._added[owners.name]

    def take_notice(self, owner: str | None) -> str:
        """Return a sentence for a user whose storage is nearly full, once; else an empty text."""
        return self._notices.pop(owner or "", "") if self._notices else ""

    async def list_statuses(self, identity: Identity, owner: str | None) -> Sequence[LimitStatus]:
        """Return how much of each limit of a caller is used."""
        return [
            LimitStatus(
                owners.level, "storage", (await self._count(owners)).total, owners.limit, 0, 0.0
            )
            for owners in self._list_owners(identity, owner)
        ]

    def _list_owners(self, identity: Identity, owner: str | None) -> Sequence[Owners]:
        tenant = f"{TENANT_PREFIX}{identity.tenant}/" if identity.tenant else ""
        found = [Owners("user", owner or "", self._per_user)]
        found += [Owners("tenant", tenant, self._per_tenant)] if tenant else []
        return [owners for owners in found if owners.limit]

    async def _count(self, owners: Owners, *, again: bool = False) -> StorageUse:
        name, now = owners.name, self._clock()
        if (use := self._counts.get(name)) is not None and not again:
            soon = 20 * use.seconds  # so that counting takes 5 % of the time at most
            if now < use.at + (
                min(soon, _COUNT_SECONDS) if name in self._added else _COUNT_SECONDS
            ):
                return use
        if len(self._counts) >= _MOST_COUNTS:
            self._counts.clear()
            self._added.clear()
        added = self._added.pop(name, 0)
        self._pending[name] += added  # until they are in the count
        parts: dict[str, int] = {}
        is_prefix = owners.level == "tenant"
        try:
            threads = self._stores.threads
            parts["conversations"] = await threads.count_bytes(owners.key, is_prefix=is_prefix)
            for extension in self._stores.extensions:
                parts |= await extension.count_bytes(owners.key, is_prefix=is_prefix)
        except CopilotError as error:
            if self._log_limit.allows_line():
                logger.error("Storage cannot be counted and is not limited: %s", error)
        finally:
            self._pending[name] -= added
        use = self._counts[name] = StorageUse(parts, now, self._clock() - now)
        return use

    def _note(self, owners: Owners, use: StorageUse) -> None:
        """Log when the storage of an owner is nearly full, and keep a sentence for the user."""
        name = owners.name
        if use.total < _NEARLY * owners.limit:
            self._warned.discard(name)
            if owners.level == "user":
                self._notices.pop(owners.key, None)  # of before a deletion
        elif name not in self._warned and len(self._warned) < _MOST_COUNTS:
            self._warned.add(name)
            logger.warning("The storage of %s is nearly full. %s", name, _describe(owners, use))
            if owners.level == "user":
                self._notices[owners.key] = (
                    f"{_describe(owners, use)} Please delete what you no longer need."
                )


def _describe(owners: Owners, use: StorageUse, coming: int = 0) -> str:
    parts = [f"{format_size(size)} of {noun}" for noun, size in use.parts.items() if size]
    subject = "You have" if owners.level == "user" else "Your organization has"
    more = f", and {format_size(coming)} are being stored" if coming else ""
    most = format_size(owners.limit)
    return f"{subject} stored {', '.join(parts) or 'nothing'}{more}; at most {most} are kept."
