"""Memories: short texts that are kept for a user beyond one conversation."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["topical", "episodic", "operational"]
"""The kind of a memory: of a subject, of an event, or of a way to work."""

Scope = Literal["user", "project"]
"""Whose a memory is: one user's, or that of all users whom the policy lets read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMemory:
    """A short text that is remembered."""

    content: str
    kind: Kind = "topical"
    scope: Scope = "user"
    threads: Sequence[str] = ()
    """The ids of the threads that it comes from."""
    id: str = ""
    """Set when it is stored."""
    score: float | None = None
    """The relevance of a recalled memory; higher is better."""


class UserMemories(ABC):
    """Stores memories. The policy decides about each of them; a user's own are that user's.

    `user` is the owner key of an identity. Each method raises `Refused` for a user without the
    permission, and `NotFound` for an id that the user may not read.
    """

    @abstractmethod
    async def list(self, user: str) -> Sequence[UserMemory]:
        """Return the memories that the user may read, the latest first."""

    @abstractmethod
    async def recall(
        self, user: str, query: str, *, scope: Scope | None = None, limit: int = 10
    ) -> Sequence[UserMemory]:
        """Return the memories that are relevant to a query, the best first."""

    @abstractmethod
    async def add(self, user: str, memory: UserMemory) -> UserMemory:
        """Store a memory, and return it with its id. Raises `Misuse`, or `LimitExceeded`."""

    @abstractmethod
    async def replace(self, user: str, id: str, memory: UserMemory) -> UserMemory:
        """Store a memory under a new id in place of another one."""

    @abstractmethod
    async def delete(self, user: str, id: str) -> None:
        """Delete a memory for good."""
