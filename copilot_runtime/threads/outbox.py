"""The outbox: messages to other systems, stored beside the threads until they are delivered.

A process claims entries by postponing them, so that no other process delivers them meanwhile. An
entry that a process delivered but could not delete becomes due again: delivery is at least once.
"""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from copilot_runtime.threads.transactions import Transaction


class OutboxEntry(NamedTuple):
    """A message, encoded by the extension that delivers it."""

    id: str
    data: bytes


class Outbox:
    """An outbox in memory, lost with the process. Times are in seconds since the epoch.

    The methods of `DatabaseOutbox` raise `StoreFailed`.
    """

    def __init__(self) -> None:
        self._entries: dict[str, tuple[float, bytes]] = {}

    async def add(self, entry: OutboxEntry, due: float) -> None:
        """Store an entry that is delivered from the time `due`."""
        self._entries.setdefault(entry.id, (due, entry.data))

    async def update(self, entry: OutboxEntry, due: float) -> None:
        """Change the data and the time of an entry, unless it was deleted."""
        if entry.id in self._entries:
            self._entries[entry.id] = due, entry.data

    async def claim(self, now: float, until: float, limit: int) -> Sequence[OutboxEntry]:
        """Return at most `limit` due entries, and postpone them to the time `until`.

        Of several processes, exactly one gets each of them.
        """
        due = sorted((due, id) for id, (due, _) in self._entries.items() if due <= now)
        claimed = [OutboxEntry(id, self._entries[id][1]) for _, id in due[:limit]]
        for entry in claimed:
            await self.update(entry, until)
        return claimed

    async def delete(self, id: str) -> None:
        """Delete an entry, if it exists."""
        self._entries.pop(id, None)


class Execute(Protocol):
    """Executes work in a transaction; with `reading`, in a read-only one."""

    async def __call__(
        self, work: Callable[["Transaction"], Coroutine[Any, Any, Any]], *, reading: bool = False
    ) -> Any: ...


class DatabaseOutbox(Outbox):
    """An outbox in the database of the threads, for all processes that share it."""

    def __init__(self, execute: Execute) -> None:
        super().__init__()
        self._execute = execute

    async def add(self, entry: OutboxEntry, due: float) -> None:
        values = "VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING"
        statement = f"INSERT INTO copilot_outbox (id, due, data) {values}"
        await self._execute(lambda db: db.execute(statement, entry.id, due, entry.data))

    async def update(self, entry: OutboxEntry, due: float) -> None:
        statement = "UPDATE copilot_outbox SET due = ?, data = ? WHERE id = ?"
        await self._execute(lambda db: db.execute(statement, due, entry.data, entry.id))

    async def claim(self, now: float, until: float, limit: int) -> Sequence[OutboxEntry]:
        find = partial(_find_due, now=now, limit=limit)
        if not await self._execute(find, reading=True):  # the usual case takes no lock
            return ()
        return await self._execute(partial(_claim, now=now, until=until, limit=limit))

    async def delete(self, id: str) -> None:
        statement = "DELETE FROM copilot_outbox WHERE id = ?"
        await self._execute(lambda db: db.execute(statement, id))


async def _find_due(db: "Transaction", *, now: float, limit: int) -> Sequence[OutboxEntry]:
    rows = await db.fetch(
        "SELECT id, data FROM copilot_outbox WHERE due <= ? ORDER BY due, id LIMIT ?", now, limit
    )
    return [OutboxEntry(id, bytes(data)) for id, data in rows]


async def _claim(
    db: "Transaction", *, now: float, until: float, limit: int
) -> Sequence[OutboxEntry]:
    # a concurrent claim holds the lock of a row, and its condition is checked again afterwards
    claim = "UPDATE copilot_outbox SET due = ? WHERE id = ? AND due <= ?"
    due = await _find_due(db, now=now, limit=limit)
    return [entry for entry in due if await db.execute(claim, until, entry.id, now)]
