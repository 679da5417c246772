"""What somebody may do with which resource, as indexes see it.

An engine may take its time to judge, and may hang. So the event loop never asks an `Access`:
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
"""So many URIs are judged in less time than a thread takes, where there is nothing to wait for."""

_SEARCHES = ThreadPool(32, "search")
"""Where searches judge by rules, beside all other work of the process."""

_ENGINES = ThreadPool(16, "judge access")
"""Where engines are asked. One that hangs makes only those wait who need its answer."""


class AccessDenied(Refused):
    """A policy does not let somebody do what was tried: no word of what it was done to."""

    code = "ACCESS_DENIED"

    def __init__(self, message: str = "Access denied", *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)


AccessAction = Literal["read", "write", "list", "delete"]


@dataclass(frozen=True, slots=True)
class Actor:
    """Who wants something: a user, an agent, or the system itself."""

    name: str
    """The user of the `authenticate` hook, or the URI of an agent; empty for nobody."""
    groups: frozenset[str] = frozenset()
    agent: str = ""
    """The agent that acts for the user, if one does."""
    conversation: str = ""
    """The URI of the conversation in which it acts: nobody has no more than that."""


class Access(ABC):
    """One actor and one action, judged before anything is shown.

    An index asks it for each resource that it would return, before it counts, sorts or cuts off.
    What it answers for a resource stays the same while `key` does, so an index may remember it.
    """

    @property
    @abstractmethod
    def key(self) -> Hashable:
        """Another value whenever another answer is possible."""

    @abstractmethod
    def allows(self, uri: str) -> bool:
        """Return whether it may be done. It never raises: what cannot be judged is denied."""

    def judge(self, uris: Iterable[str]) -> list[bool]:
        """Return for each whether it may be done: faster than one by one."""
        return [*map(self.allows, uris)]

    @property
    def immediate(self) -> "Access | None":
        """What answers in its place at this moment without a wait, such as for a process or a file.

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
"""For the system itself: ingestion, and the commands of an operator."""


async def judge(access: Access, uris: Iterable[str]) -> list[bool]:
    """Return for each resource whether it may be done, without a wait on the event loop."""
    uris = [*uris]
    immediate = access.immediate
    if immediate is not None and len(uris) <= _MOST_ON_LOOP:
        return immediate.judge(uris)
    return await run_with_access(access, lambda: access.judge(uris)) if uris else []


async def select(access: Access, items: Iterable[T]) -> list[T]:
    """Return those of some resources, by their URI or as identifiers, with which it may be done."""
    items = [*items]
    if access is FULL_ACCESS:
        return items
    allowed = await judge(access, map(str, items))
    return [item for item, may in zip(items, allowed, strict=True) if may]


async def require(access: Access, uris: Iterable[str]) -> None:
    """Raise `AccessDenied` unless it may be done with all of the resources."""
    if access is not FULL_ACCESS and not all(await judge(access, uris)):
        raise AccessDenied


async def run_with_access(access: Access, work: Callable[[], T]) -> T:
    """Return what sync work returns that asks an access: it runs in a thread.

    What may wait for an engine has threads of its own, and takes nobody else's.
    """
    pool = _ENGINES if access.immediate is None else _SEARCHES
    return await pool.run(work)
