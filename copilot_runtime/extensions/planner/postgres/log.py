"""The plan log in PostgreSQL, for servers on several machines."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from functools import partial
from math import inf
from time import monotonic, time
from typing import Any, NamedTuple, TypeVar

from copilot_runtime.base.errors import CopilotError, Misuse, StoreFailed
from copilot_runtime.database.postgres.pool import Pool
from copilot_runtime.extensions.planner.events import (
    PlanEntry,
    PlanEvent,
    QuestionAnswered,
    StopRequested,
    decode_event,
    encode_event,
)
from copilot_runtime.extensions.planner.log import (
    MAX_DELETIONS,
    PUBLIC,
    Lease,
    LeaseLost,
    PlanCommand,
    PlanLog,
    PlanQuery,
    PlanSummary,
    build_closed_error,
    build_conditions,
    build_gap_error,
    build_lost_error,
    build_missing_error,
    decode_command,
    decode_summary,
    number_events,
)
from copilot_runtime.extensions.planner.plan import FINAL_STATUSES, Status
from copilot_runtime.extensions.planner.postgres.schema import Server, prepare
from copilot_runtime.threads.postgres.transaction import number_values
from copilot_runtime.threads.store import ThreadKey

T = TypeVar("T")

logger = logging.getLogger(__name__)

_MAX_BATCH = 200
"""Maximum writes in one transaction."""

_TIMEOUT = 10.0
"""Maximum seconds of a statement: a network that drops packets does not break a connection."""

_COLUMNS = "id, owner, thread, created, updated, status, title"


class PostgresPlanLog(PlanLog):
    """Plans in the tables `copilot_plan…` of a database, which are created when they are missing.

    Each plan belongs to one server. The plans of a dead server are available at once to the next
    one that claims them; those of a server that hangs or is disconnected, after its lease. Later
    writes of that server are refused by the epoch (fencing), so no plan runs twice.

    Args:
    url: URL of the database, `postgresql://…`.
    max_connections: Size of the pool; one more connection holds the lock.
    lease: Seconds without a heartbeat after which a server counts as dead.
    clock: Returns seconds since 1970.
    """

    def __init__(
        self,
        url: str,
        *,
        max_connections: int = 5,
        lease: float = 5.0,
        clock: Callable[[], float] = time,
    ) -> None:
        self._url = url
        self._max_connections = max_connections
        self._lease = lease
        self._clock = clock
        self._pool: Pool | None = None
        self._server: Server | None = None
        self._opening = asyncio.Lock()
        self._owned: set[str] = set()
        """Ids of plans that run here or are about to; other plans of this server are orphans."""
        self._writes: list[_Write] = []
        self._writing: asyncio.Task[None] | None = None
        self._latest: asyncio.Future[Sequence[PlanEntry]] | None = None

    async def open(self) -> None:
        async with self._opening:
            if self._server is None:
                await self._open()

    async def _open(self) -> None:
        pool = Pool(self._url, self._max_connections, content="plans", timeout=_TIMEOUT)
        server = Server(pool, self._lease)
        try:
            await pool.retry(partial(pool.open, prepare))
            await server.start()
        except BaseException:
            await server.leave()
            pool.close()
            raise
        self._pool, self._server = pool, server

    async def create(
        self, summary: PlanSummary, events: Sequence[PlanEvent]
    ) -> tuple[Lease, Sequence[PlanEntry]]:
        pool, server = await self._connect()
        now = self._clock()
        entries = number_events(events, 1, now)
        row = (
            summary.id,
            clean_text(summary.user),
            clean_text(summary.thread_id),
            clean_text(summary.title),
            now,
            summary.status,
            len(entries),
            server.id,
        )

        async def insert(connection: Any) -> None:
            is_new = await connection.fetchval(
                "INSERT INTO copilot_plans"
                " (id, owner, thread, title, created, updated, status, number, server)"
                " VALUES ($1, $2, $3, $4, $5, $5, $6, $7, $8)"
                " ON CONFLICT (id) DO NOTHING RETURNING true",
                *row,
            )
            if is_new:
                await _insert_entries(connection, summary.id, entries)
            elif not await connection.fetchval(  # the response to a first attempt may be lost
                "SELECT server = $2 AND created = $3 FROM copilot_plans WHERE id = $1",
                *(summary.id, server.id, now),
            ):
                raise Misuse(f"There is a plan {summary.id[:100]!r} already.")

        await self._take(summary.id, partial(pool.do, insert))
        return Lease(summary.id, 1), entries

    def append(
        self,
        lease: Lease,
        number: int,
        events: Sequence[PlanEvent],
        *,
        status: Status | None = None,
    ) -> "asyncio.Future[Sequence[PlanEntry]]":
        entries = number_events(events, number, self._clock())
        write = _Write(lease, number, entries, status, asyncio.get_running_loop().create_future())
        self._writes.append(write)
        self._latest = write.future
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(
                self._write_all(), name="plans:write", context=Context()
            )
        return write.future

    async def _write_all(self) -> None:
        """Store pending writes, in batches of one transaction each."""
        while self._writes:
            writes = self._writes[:_MAX_BATCH]
            del self._writes[: len(writes)]
            try:
                failures = await self._write(_join_writes(writes))
            except Exception as error:
                if not isinstance(error, CopilotError):
                    logger.exception("Events of plans cannot be stored.")
                    error = StoreFailed(f"Events cannot be stored: {error}.", public=PUBLIC)
                failures = {write.lease: error for write in writes}
            for write in writes:
                if write.future.done():  # cancelled
                    continue
                if (failure := failures.get(write.lease)) is not None:
                    write.future.set_exception(failure)
                else:
                    write.future.set_result(write.entries)

    async def _write(self, chains: "Sequence[_Chain]") -> "dict[Lease, CopilotError]":
        """Store events of several plans; return the errors of those that could not be stored."""
        if self._pool is None or self._server is None:
            raise build_closed_error()
        deadline = self._server.deadline
        failures = await self._pool.execute(partial(_store, chains))
        if monotonic() > deadline:
            # the response was so late that another server may have taken the plans over
            for lease in await self.find_stale([chain.lease for chain in chains]):
                failures[lease] = build_lost_error(lease.plan_id)
        for chain in chains:
            if chain.status in FINAL_STATUSES or isinstance(failures.get(chain.lease), LeaseLost):
                self._owned.discard(chain.lease.plan_id)
        return failures

    async def read(self, plan_id: str, after: int = 0) -> Sequence[PlanEntry]:
        pool = await self._connect_and_settle()
        _check_id(plan_id)

        async def select(connection: Any) -> Sequence[Any]:
            rows = await connection.fetch(
                "SELECT number, time, data FROM copilot_plan_events"
                " WHERE plan = $1 AND number > $2 ORDER BY number",
                *(plan_id, after),
            )
            if not rows:
                await _select_plan(connection, plan_id)
            return rows

        rows = await pool.do(select, reading=True)
        return [PlanEntry(number, moment, decode_event(data)) for number, moment, data in rows]

    async def list_plans(self, query: PlanQuery) -> Sequence[PlanSummary]:
        pool = await self._connect_and_settle()
        conditions, values = build_conditions(query, "owner IS NOT DISTINCT FROM ?")
        values = [clean_text(value) if isinstance(value, str) else value for value in values]
        statement = (
            f"SELECT {_COLUMNS} FROM copilot_plans "  # noqa: S608  # constants
            f"WHERE {number_values(conditions)} "
            f"ORDER BY created DESC, id DESC LIMIT {int(query.limit)}"
        )
        rows = await pool.do(lambda connection: connection.fetch(statement, *values), reading=True)
        return [decode_summary(row) for row in rows]

    async def find(self, plan_id: str) -> PlanSummary:
        pool = await self._connect_and_settle()
        _check_id(plan_id)
        row = await pool.do(lambda connection: _select_plan(connection, plan_id), reading=True)
        return decode_summary(row)

    async def claim(self) -> Sequence[Lease]:
        pool, server = await self._connect()

        async def take(connection: Any) -> Sequence[Lease]:
            rows = await connection.fetch(
                "UPDATE copilot_plans SET server = $1, epoch = epoch + 1"
                " WHERE NOT is_over"
                # its own orphans: the response to an earlier claim was lost
                " AND (server = ANY($2) OR (server = $1 AND id <> ALL($3)))"
                " RETURNING id, epoch",
                *(server.id, await server.find_dead(connection), [*self._owned]),
            )
            return [Lease(id, epoch) for id, epoch in rows]

        leases = await pool.do(take)
        self._owned.update(lease.plan_id for lease in leases)
        return leases

    async def claim_plan(
        self, plan_id: str, number: int, events: Sequence[PlanEvent]
    ) -> tuple[Lease, Sequence[PlanEntry]]:
        pool, server = await self._connect()
        _check_id(plan_id)
        if plan_id in self._owned:
            raise build_lost_error(plan_id)
        entries = number_events(events, number, self._clock())
        last = number + len(entries) - 1

        async def take(connection: Any) -> int:
            epoch = await connection.fetchval(
                "UPDATE copilot_plans SET server = $2, epoch = epoch + 1, number = $4,"
                " status = 'running', is_over = false, updated = $5"
                " WHERE id = $1 AND is_over AND number = $3 RETURNING epoch",
                *(plan_id, server.id, number - 1, last, self._clock()),
            )
            if epoch is not None:
                await connection.execute(
                    "DELETE FROM copilot_plan_commands WHERE plan = $1", plan_id
                )
                await _insert_entries(connection, plan_id, entries)
                return epoch
            await _select_plan(connection, plan_id)
            epoch = await connection.fetchval(  # the response to a first attempt may be lost
                "SELECT epoch FROM copilot_plans"
                " WHERE id = $1 AND server = $2 AND number = $3 AND NOT is_over",
                *(plan_id, server.id, last),
            )
            if epoch is None:
                raise build_lost_error(plan_id)
            return epoch

        epoch = await self._take(plan_id, partial(pool.do, take))
        return Lease(plan_id, epoch), entries

    async def renew(self, lease: Lease) -> Lease:
        pool, server = await self._connect()

        async def take(connection: Any) -> int:
            epoch = await connection.fetchval(
                "UPDATE copilot_plans SET epoch = epoch + 1"
                " WHERE id = $1 AND server = $2 AND NOT is_over RETURNING epoch",
                *(lease.plan_id, server.id),
            )
            if epoch is None:
                raise build_lost_error(lease.plan_id)
            return epoch

        return Lease(lease.plan_id, await self._take(lease.plan_id, partial(pool.do, take)))

    async def find_stale(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        pool, _ = await self._connect()

        async def select(connection: Any) -> Sequence[Any]:
            return await connection.fetch(
                "SELECT id, epoch FROM copilot_plans WHERE id = ANY($1)",
                [lease.plan_id for lease in leases],
            )

        epochs: dict[str, int] = dict(await pool.execute(select))
        return [lease for lease in leases if epochs.get(lease.plan_id) != lease.epoch]

    async def check_lease(self, lease: Lease) -> None:
        is_late = True
        while is_late:  # another server may have taken the plan over since the query
            began = monotonic()
            await super().check_lease(lease)
            is_late = monotonic() > began + self._lease / 2

    async def delete_plans(self, *, before: float = inf, thread: ThreadKey | None = None) -> int:
        pool, _ = await self._connect()
        owner, thread_id = thread or (None, None)
        rows = await pool.do(
            lambda connection: connection.fetch(
                "DELETE FROM copilot_plans WHERE id IN (SELECT id FROM copilot_plans"
                " WHERE is_over AND updated < $1 AND ($2::text IS NULL"
                " OR (thread = $2 AND coalesce(owner, '') = $3)) LIMIT $4)"
                " AND is_over RETURNING id",
                *(before, thread_id, owner, MAX_DELETIONS),
            )
        )
        return len(rows)

    async def add_command(self, plan_id: str, event: StopRequested | QuestionAnswered) -> None:
        pool, _ = await self._connect()
        _check_id(plan_id)
        row = (plan_id, encode_event(event))

        async def insert(connection: Any) -> None:
            await _select_plan(connection, plan_id)
            await connection.execute(
                "INSERT INTO copilot_plan_commands (plan, data) VALUES ($1, $2)", *row
            )

        await pool.do(insert)

    async def read_commands(self) -> Sequence[PlanCommand]:
        pool, server = await self._connect()

        async def select(connection: Any) -> Sequence[Any]:
            return await connection.fetch(
                "SELECT command.id, plan, data FROM copilot_plan_commands AS command"
                " JOIN copilot_plans AS plans ON plans.id = plan"
                " WHERE server = $1 ORDER BY command.id",
                server.id,
            )

        return [decode_command(row) for row in await pool.do(select, reading=True)]

    async def remove_command(self, id: int) -> None:
        pool, _ = await self._connect()
        await pool.do(
            lambda connection: connection.execute(
                "DELETE FROM copilot_plan_commands WHERE id = $1", id
            )
        )

    async def aclose(self) -> None:
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=_TIMEOUT)
        pool, self._pool = self._pool, None
        server, self._server = self._server, None
        self._owned.clear()
        if server is not None:
            await server.leave()
        if pool is not None:
            pool.close()

    async def _connect(self) -> tuple[Pool, Server]:
        if self._server is None:
            await self.open()
        assert self._pool is not None and self._server is not None
        return self._pool, self._server

    async def _connect_and_settle(self) -> Pool:
        """Wait for earlier writes, so that reads see them."""
        if self._latest is not None and not self._latest.done():
            await asyncio.wait([self._latest])
        pool, _ = await self._connect()
        return pool

    async def _take(self, plan_id: str, take: Callable[[], Awaitable[T]]) -> T:
        """Take a plan; mark it as owned meanwhile, so that `claim` does not consider it
        an orphan.
        """
        self._owned.add(plan_id)
        try:
            return await take()
        except BaseException:
            self._owned.discard(plan_id)
            raise


class _Write(NamedTuple):
    """A pending write of one call of `append`."""

    lease: Lease
    number: int
    entries: Sequence[PlanEntry]
    status: Status | None
    future: "asyncio.Future[Sequence[PlanEntry]]"


class _Chain(NamedTuple):
    """Consecutive entries that a transaction stores for one lease."""

    lease: Lease
    first: int
    entries: Sequence[PlanEntry]
    status: Status | None

    @property
    def last(self) -> int:
        return self.first + len(self.entries) - 1


def _join_writes(writes: Sequence[_Write]) -> Sequence[_Chain]:
    """Join consecutive writes of the same lease into chains."""
    chains: list[_Chain] = []
    latest: dict[Lease, int] = {}
    for lease, number, entries, status, _ in writes:
        at = latest.get(lease)
        if at is not None and chains[at].last + 1 == number:
            chain = chains[at]
            chains[at] = chain._replace(
                entries=[*chain.entries, *entries], status=status or chain.status
            )
        else:
            latest[lease] = len(chains)
            chains.append(_Chain(lease, number, entries, status))
    return chains


async def _store(chains: Sequence[_Chain], connection: Any) -> dict[Lease, CopilotError]:
    """Store chains in one statement; return the errors of those that were refused.

    The statement that writes also compares the epoch, so a takeover either waits for it or makes it
    see the new epoch.
    """
    leases = [chain.lease for chain in chains]
    rows = [(at, entry) for at, chain in enumerate(chains) for entry in chain.entries]
    stored = await connection.fetch(
        _STORE,
        [lease.plan_id for lease in leases],
        [lease.epoch for lease in leases],
        [chain.first for chain in chains],
        [chain.last for chain in chains],
        [chain.status for chain in chains],
        [None if chain.status is None else chain.status in FINAL_STATUSES for chain in chains],
        max((entry.time for _, entry in rows), default=None),
        [at for at, _ in rows],
        [entry.number for _, entry in rows],
        [entry.time for _, entry in rows],
        [encode_event(entry.event) for _, entry in rows],
    )
    refused = {*range(len(chains))}.difference(at for (at,) in stored)
    if not refused:
        return {}
    found = await connection.fetch(
        "SELECT id, epoch, number FROM copilot_plans WHERE id = ANY($1)",
        [chains[at].lease.plan_id for at in refused],
    )
    places = {id: (epoch, number) for id, epoch, number in found}
    failures: dict[Lease, CopilotError] = {}
    for chain in (chains[at] for at in refused):
        epoch, number = places.get(chain.lease.plan_id, (None, None))
        if epoch != chain.lease.epoch:
            failures[chain.lease] = build_lost_error(chain.lease.plan_id)
        elif number != chain.last:  # else the response to a first attempt was lost
            failures[chain.lease] = build_gap_error(chain.lease.plan_id)
    return failures


_STORE = """
WITH chain AS (
    SELECT * FROM unnest(
        $1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::bool[]
    ) WITH ORDINALITY AS chain (plan, epoch, first, last, status, is_over, at)
), held AS (
    UPDATE copilot_plans AS plans SET number = last, updated = coalesce($7, updated),
        status = coalesce(chain.status, plans.status),
        is_over = coalesce(chain.is_over, plans.is_over)
    FROM chain WHERE plans.id = chain.plan AND plans.epoch = chain.epoch
        AND plans.number = first - 1
    RETURNING chain.plan, (at - 1)::integer AS at
), stored AS (
    INSERT INTO copilot_plan_events (plan, number, time, data)
    SELECT plan, number, time, data FROM held JOIN
        unnest($8::integer[], $9::bigint[], $10::float8[], $11::bytea[])
        AS event (chain, number, time, data) ON event.chain = held.at
)
SELECT at FROM held
"""


async def _insert_entries(connection: Any, plan_id: str, entries: Sequence[PlanEntry]) -> None:
    await connection.executemany(
        "INSERT INTO copilot_plan_events (plan, number, time, data) VALUES ($1, $2, $3, $4)",
        [(plan_id, entry.number, entry.time, encode_event(entry.event)) for entry in entries],
    )


async def _select_plan(connection: Any, plan_id: str) -> Any:
    """Return the row of a plan. Raises `NotFound`."""
    row = await connection.fetchrow(
        f"SELECT {_COLUMNS} FROM copilot_plans WHERE id = $1",  # noqa: S608  # a constant
        plan_id,
    )
    if row is None:
        raise build_missing_error(plan_id)
    return row


def _check_id(plan_id: str) -> None:
    """Raise `NotFound` for an id with characters that PostgreSQL cannot store."""
    if clean_text(plan_id) != plan_id:
        raise build_missing_error(plan_id)


def clean_text(text: str | None) -> Any:
    """Replace characters that PostgreSQL cannot store: lone surrogates and NUL."""
    return text and text.encode(errors="replace").decode().replace("\0", "\ufffd")
