"""What somebody may do with which resource, as indexes see it."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Literal

from copilot_runtime.errors import Refused


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


class _FullAccess(Access):
    @property
    def key(self) -> Hashable:
        return "full"

    def allows(self, uri: str) -> bool:  # noqa: ARG002
        return True


FULL_ACCESS: Access = _FullAccess()
"""For the system itself: ingestion, and the commands of an operator."""
