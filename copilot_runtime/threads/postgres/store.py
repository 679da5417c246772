"""Keep threads in PostgreSQL: the store for servers on several machines."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from copilot_runtime.interfaces import RunInput
from copilot_runtime.messages import Message
from copilot_runtime.threads.postgres import transactions
from copilot_runtime.threads.postgres.connection import Link
from copilot_runtime.threads.postgres.schema import hash_key
from copilot_runtime.threads.rows import COLUMNS, Clock, build_page, build_thread, from_datetime
from copilot_runtime.threads.store import (
    Segment,
    StoredRun,
    Thread,
    ThreadKey,
    ThreadPage,
    ThreadQuery,
    ThreadStore,
)
from copilot_runtime.threads.validation import (
    MOST_PER_PAGE,
    check_text,
    get_thread_key,
    is_valid_key,
    log_id_in_use,
    page_size,
    parse_cursor,
)

T = TypeVar("T")

logger = logging.getLogger("copilot_runtime.threads")

_EXPIRED_AT_ONCE = 500
"""Threads forgotten in one transaction."""


class PostgresThreads(ThreadStore):
    """Threads in the tables `copilot_…` of a database, which are made when they are missing.

    A server tells the others that it is alive by an advisory lock of its session, so a pooler
    such as PgBouncer must pool sessions, not transactions. While the database restarts, work
    waits for it for ten seconds.
    """

    def __init__(self, url: str, *, max_connections: int = 10) -> None:
        self._link: Link | None = None
        self._make = partial(Link, url, max_connections)
        self._clock = Clock()
        self._opening = asyncio.Lock()
        self._running: dict[str, _OpenRun] = {}
        self._undoing: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Connect, make the tables, and end the runs of servers that died.

        Everything else connects too if need be. Raises `MissingPackage` or `StoreFailed`.
        """
        await self._connect()

    async def begin(self, run: RunInput) -> Sequence[Message]:
        """Begin the log of a run. Raises `ThreadBusy`, or `Misuse` for ids too long to keep."""
        key = get_thread_key(run)
        link = await self._connect()
        now = self._clock.now()
        work = partial(transactions.begin_run, key=key, run=run, now=now, server=link.server)
        try:
            thread, new = await link.do(work)
        except asyncio.CancelledError:
            self._undo(link, key, now)
            raise
        if run.log_id in self._running:
            await link.do(partial(transactions.undo_begin, key=key, run=now))
            raise log_id_in_use(run.log_id)
        self._running[run.log_id] = _OpenRun(key, thread, now)
        return new

    async def write(self, segments: Sequence[Segment]) -> None:
        """Add to logs. What belongs to a thread that was deleted goes nowhere."""
        link = await self._connect()
        first = self._clock.now(len(segments) or 1)
        rows = [
            (first + place, self._running[segment.log_id].place, segment)
            for place, segment in enumerate(segments)
            if segment.log_id in self._running
        ]
        if rows:
            await link.do(partial(transactions.write_segments, segments=rows))
        for _, _, segment in rows:
            if segment.whole is not None:
                self._running.pop(segment.log_id, None)

    async def list(self, query: ThreadQuery) -> ThreadPage:
        """Return a page of threads. Raises `Misuse` for a cursor that is none."""
        size = page_size(query.limit)
        rows = await self._fetch(
            f"SELECT {COLUMNS} FROM copilot_threads WHERE owner = $1"  # noqa: S608  # ours
            " AND ($2::text IS NULL OR agent = $2) AND ($3 OR NOT archived)"
            " AND (updated, id) < ($4, $5) ORDER BY updated DESC, id DESC LIMIT $6",
            *(query.owner, query.agent, query.archived, *parse_cursor(query.cursor), size + 1),
        )
        return build_page(rows, size)

    async def get(self, key: ThreadKey) -> Thread | None:
        if not is_valid_key(key):
            return None
        rows = await self._fetch(
            f"SELECT {COLUMNS} FROM copilot_threads WHERE digest = $1",  # noqa: S608  # ours
            hash_key(key),
        )
        return build_thread(rows[0]) if rows else None

    async def runs(self, key: ThreadKey) -> Sequence[StoredRun]:
        """Return the runs of a thread, the oldest first. What is damaged is left out and logged."""
        if not is_valid_key(key):
            return []
        return await self._do(partial(transactions.read_runs, key=key))

    async def update(
        self, key: ThreadKey, *, name: str | None = None, archived: bool | None = None
    ) -> Thread | None:
        """Change what is not None; an empty name takes the name away."""
        check_text("name", name or "")
        if not is_valid_key(key):
            return None
        rows = await self._fetch(
            "UPDATE copilot_threads SET updated = $2, archived = coalesce($3, archived),"  # noqa: S608
            f" name = nullif(coalesce($4, name), '') WHERE digest = $1 RETURNING {COLUMNS}",
            *(hash_key(key), self._clock.now(), archived, name),
        )
        return build_thread(rows[0]) if rows else None

    async def delete(self, key: ThreadKey) -> bool:
        """Forget a thread; a run that goes on is kept no more."""
        if not is_valid_key(key):
            return False
        for name in [name for name, run in self._running.items() if run.key == key]:
            del self._running[name]
        statement = "DELETE FROM copilot_threads WHERE digest = $1 RETURNING id"
        return bool(await self._fetch(statement, hash_key(key)))

    async def expire(self, before: datetime) -> int:
        """Forget threads not touched since `before`, except those with a run."""
        gone = 0
        while True:
            rows = await self._fetch(
                "DELETE FROM copilot_threads WHERE id IN (SELECT id FROM copilot_threads"
                " WHERE updated < $1 AND running IS NULL ORDER BY id LIMIT $2"
                " FOR UPDATE SKIP LOCKED) RETURNING id",
                *(from_datetime(before), _EXPIRED_AT_ONCE),
            )
            gone += len(rows)
            if not rows:
                return gone

    async def everyones(self, cursor: str | None = None) -> ThreadPage:
        """Return a page of the threads of all owners, the oldest first."""
        after = parse_cursor(cursor).number if cursor else 0
        rows = await self._fetch(
            f"SELECT {COLUMNS} FROM copilot_threads WHERE id > $1 ORDER BY id LIMIT $2",  # noqa: S608
            *(after, MOST_PER_PAGE + 1),
        )
        return build_page(rows, MOST_PER_PAGE)

    async def put(self, thread: Thread, runs: Sequence[StoredRun]) -> int:
        """Take in a thread of another store, and those of its runs that are not here yet."""
        return await self._do(
            partial(transactions.put_thread, thread=thread, runs=runs, now=self._clock.now())
        )

    async def aclose(self) -> None:
        """Disconnect. What is asked for later connects again."""
        if self._undoing:
            await asyncio.wait(self._undoing)
        async with self._opening:
            link, self._link = self._link, None
            self._running.clear()
            if link is not None:
                await link.close()

    def _undo(self, link: Link, key: ThreadKey, run: int) -> None:
        """Forget a run, if it was begun, for somebody who had left."""

        async def undo() -> None:
            await link.do(partial(transactions.undo_begin, key=key, run=run))

        task = asyncio.create_task(undo())
        self._undoing.add(task)
        task.add_done_callback(self._undone)

    def _undone(self, task: asyncio.Task[None]) -> None:
        self._undoing.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logger.error("A run that nobody waits for is still in its thread: %s", error)

    async def _connect(self) -> Link:
        if self._link is not None:
            return self._link
        async with self._opening:
            if self._link is None:
                self._link = await self._open_now()
        return self._link

    async def _open_now(self) -> Link:
        link = self._make()
        await link.open()
        try:
            recover = partial(transactions.end_dead_runs, now=self._clock.now(), server=link.server)
            if count := await link.do(recover):
                logger.warning("Ended %s runs that a server left unfinished", count)
        except BaseException:
            await link.close()
            raise
        return link

    async def _do(self, work: Callable[[Any], Awaitable[T]]) -> T:
        return await (await self._connect()).do(work)

    async def _fetch(self, statement: str, *values: object) -> Sequence[Any]:
        async def fetch(db: Any) -> Sequence[Any]:
            return await db.fetch(statement, *values)

        return await self._do(fetch)


class _OpenRun(NamedTuple):
    key: ThreadKey
    thread: int
    run: int

    @property
    def place(self) -> tuple[int, int]:
        return self.thread, self.run
