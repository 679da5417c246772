"""Stores of memories, as values by key: in this process, or (`duckdb_store`) in a file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote

PREFIX = "copilot_memory"

Change = Callable[[str | None], str | None]
"""Returns the new value for the current one, or `None` to delete it. May be called more than once.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryKey:
    """The owner, agent and table of a memory. Each schema of a table has its own memory."""

    table: str
    fingerprint: str
    agent: str | None = None
    owner: str | None = None
    """The user; `None` for all anonymous users."""

    def __str__(self) -> str:
        """Return the key as text, such as `copilot_memory:orders:0123456789ab`."""
        parts = [PREFIX, quote(self.table, safe=""), quote(self.fingerprint, safe="")]
        if self.agent is not None or self.owner is not None:
            parts.append(quote(self.agent or "", safe=""))
        if self.owner is not None:
            parts.append(quote(self.owner, safe=""))
        return ":".join(parts)


class MemoryStore(Protocol):
    """Values by key. A key belongs to one owner."""

    async def read(self, owner: str | None) -> Mapping[MemoryKey, str]:
        """Return all values of an owner. Raises `StoreFailed`."""
        ...

    async def update(self, key: MemoryKey, change: Change) -> None:
        """Change a value atomically. Raises `StoreFailed`, or the exception of `change`."""
        ...

    async def aclose(self) -> None: ...


class ProcessMemoryStore:
    """Keeps values in this process."""

    def __init__(self) -> None:
        self._values: dict[MemoryKey, str] = {}

    async def read(self, owner: str | None) -> Mapping[MemoryKey, str]:
        """Return all values of an owner."""
        return {key: value for key, value in self._values.items() if key.owner == owner}

    async def update(self, key: MemoryKey, change: Change) -> None:
        """Change a value."""
        value = change(self._values.get(key))
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value

    async def aclose(self) -> None:
        """Do nothing."""
