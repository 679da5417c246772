"""The access of an actor to resources, as indexes check it.

A policy engine may be slow or hang, so the event loop never calls an `Access` directly:
`judge`, `select`, `require` and `run_with_access` do it in threads, but for what needs no wait.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

from copilot_runtime.base.concurrency import ThreadPool
from copilot_runtime.base.errors import Refused

T = TypeVar("T")

_MOST_ON_LOOP = 1000
"""Maximum number of URIs judged on the event loop, which is faster than starting a thread."""

_SEARCHES = ThreadPool(32, "search")
"""Threads of searches that judge by rules, apart from the other work of the process."""

_ENGINES = ThreadPool(16, "judge access")
"""Threads that call policy engines. A hanging engine blocks only the callers that need it."""


class AccessDenied(Refused):
    """A policy denies an action. The message does not name the resource."""

    code = "ACCESS_DENIED"

    def __init__(self, message: str = "Access denied", *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)


AccessAction = Literal["read", "write", "list", "delete"]


@dataclass(frozen=True, slots=True)
class Actor:
    """The subject of an access check: a user, an agent, or the system itself."""

    name: str
    """The user of the `authenticate` hook, or the URI of an agent; empty for an anonymous user."""
    groups: frozenset[str] = frozenset()
    agent: str = ""
    """The agent that acts for the user, if one does."""
    conversation: str = ""
    """The URI of the current conversation; an anonymous user owns only the resources below it."""


class Access(ABC):
    """The permission check of one actor and one action.

    An index checks each candidate before it counts, sorts or truncates results. Answers stay the
    same while `key` does, so an index may cache them.
    """

    @property
    @abstractmethod
    def key(self) -> Hashable:
        """A cache key that changes whenever an answer may change."""

    @abstractmethod
    def allows(self, uri: str) -> bool:
        """Return whether the action is allowed. Never raises: an undecidable case is denied."""

    def judge(self, uris: Iterable[str]) -> list[bool]:
        """Return whether the action is allowed, for each URI; faster than one call for each."""
        return [*map(self.allows, uris)]

    @property
    def immediate(self) -> "Access | None":
        """An equivalent access that currently answers without blocking, or `None`.

        Without one, it is judged in a thread.
        """
        return None


class _FullAccess(Access):
    @property
    def key(self) -> Hashable:
        return "full"

    @property
    def immediate(self) -> Access:
        return self

    def allows(self, uri: str) -> bool:  # noqa: ARG002
        return True


FULL_ACCESS: Access = _FullAccess()
"""The access of the system itself: ingestion, and the commands of an operator."""


async def judge(access: Access, uris: Iterable[str]) -> list[bool]:
    """Return whether the action is allowed, for each resource, without blocking the event loop."""
    uris = [*uris]
    immediate = access.immediate
    if immediate is not None and len(uris) <= _MOST_ON_LOOP:
        return immediate.judge(uris)
    return await run_with_access(access, lambda: access.judge(uris)) if uris else []


async def select(access: Access, items: Iterable[T]) -> list[T]:
    """Return the items, URIs or identifiers, for which the action is allowed."""
    items = [*items]
    if access is FULL_ACCESS:
        return items
    allowed = await judge(access, map(str, items))
    return [item for item, may in zip(items, allowed, strict=True) if may]


async def require(access: Access, uris: Iterable[str]) -> None:
    """Raise `AccessDenied` unless the action is allowed for all of the resources."""
    if access is not FULL_ACCESS and not all(await judge(access, uris)):
        raise AccessDenied


async def run_with_access(access: Access, work: Callable[[], T]) -> T:
    """Run a blocking function that checks an access in a thread, and return its result.

    Accesses that may wait for an engine use a separate thread pool.
    """
    pool = _ENGINES if access.immediate is None else _SEARCHES
    return await pool.run(work)
