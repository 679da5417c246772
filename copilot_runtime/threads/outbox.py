"""The outbox: messages to other systems, stored beside the threads until they are delivered.

A process claims entries by postponing them, so that no other process delivers them meanwhile. An
entry that a process delivered but could not delete becomes due again: delivery is at least once.
"""

from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from copilot_runtime.threads.transactions import Transaction


class OutboxEntry(NamedTuple):
    """A message of an owner, encoded by the extension that delivers it."""

    id: str
    owner: str
    data: bytes


class Claim(NamedTuple):
    """The entries to claim: at most `limit` that are due, and `share` of each owner among them.

    The first of each owner come first, so that the many of one do not hold up those of another.
    Entries of `busy` owners are left out.
    """

    now: float
    until: float
    limit: int
    share: int
    busy: Collection[str] = ()


class Outbox:
    """An outbox in memory, lost with the process. Times are in seconds since the epoch.

    The methods of `DatabaseOutbox` raise `StoreFailed`.
    """

    def __init__(self) -> None:
        self._entries: dict[str, tuple[float, OutboxEntry]] = {}

    async def add(self, entry: OutboxEntry, due: float) -> None:
        """Store an entry that is delivered from the time `due`."""
        self._entries.setdefault(entry.id, (due, entry))

    async def update(self, entry: OutboxEntry, due: float) -> None:
        """Change the data and the time of an entry, unless it was deleted."""
        if entry.id in self._entries:
            self._entries[entry.id] = due, entry

    async def claim(self, claim: Claim) -> Sequence[OutboxEntry]:
        """Return the claimed entries, and postpone them to the time `until`.

        Of several processes, exactly one gets each of them.
        """
        queues: dict[str, list[OutboxEntry]] = {}
        for due, entry in sorted(self._entries.values()):
            if due <= claim.now and entry.owner not in claim.busy:
                queues.setdefault(entry.owner, []).append(entry)
        found = _take_turns([queue[: claim.share] for queue in queues.values()], claim.limit)
        for entry in found:
            await self.update(entry, claim.until)
        return found

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
        values = "VALUES (?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"
        statement = f"INSERT INTO copilot_outbox (id, owner, due, data) {values}"
        await self._execute(
            lambda db: db.execute(statement, entry.id, entry.owner, due, entry.data)
        )

    async def update(self, entry: OutboxEntry, due: float) -> None:
        statement = "UPDATE copilot_outbox SET due = ?, data = ? WHERE id = ?"
        await self._execute(lambda db: db.execute(statement, due, entry.data, entry.id))

    async def claim(self, claim: Claim) -> Sequence[OutboxEntry]:
        find = partial(_find_due, claim=claim)
        if not await self._execute(find, reading=True):  # the usual case takes no lock
            return ()
        return await self._execute(partial(_claim, claim=claim))

    async def delete(self, id: str) -> None:
        statement = "DELETE FROM copilot_outbox WHERE id = ?"
        await self._execute(lambda db: db.execute(statement, id))


async def _find_due(db: "Transaction", claim: Claim) -> Sequence[OutboxEntry]:
    owners = await db.fetch(
        "SELECT owner FROM copilot_outbox WHERE due <= ? GROUP BY owner"
        " ORDER BY MIN(due), owner LIMIT ?",
        *(claim.now, claim.limit + len(claim.busy)),
    )
    queues = [
        await db.fetch(
            "SELECT id, owner, data FROM copilot_outbox WHERE owner = ? AND due <= ?"
            " ORDER BY due, id LIMIT ?",
            *(owner, claim.now, claim.share),
        )
        for (owner,) in owners
        if owner not in claim.busy
    ]
    found = [[OutboxEntry(id, owner, bytes(data)) for id, owner, data in rows] for rows in queues]
    return _take_turns(found, claim.limit)


def _take_turns(queues: Sequence[Sequence[OutboxEntry]], limit: int) -> Sequence[OutboxEntry]:
    """Return the first entry of each queue, then the second of each, and so on."""
    turns = chain.from_iterable(zip_longest(*queues))
    return [entry for entry in turns if entry is not None][:limit]


async def _claim(db: "Transaction", claim: Claim) -> Sequence[OutboxEntry]:
    # a concurrent claim holds the lock of a row, and its condition is checked again afterwards
    postpone = "UPDATE copilot_outbox SET due = ? WHERE id = ? AND due <= ?"
    due = await _find_due(db, claim)
    return [entry for entry in due if await db.execute(postpone, claim.until, entry.id, claim.now)]
