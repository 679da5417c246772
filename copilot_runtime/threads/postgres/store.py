"""Keep threads in PostgreSQL: the store for servers on several machines."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from copilot_runtime.interfaces import RunInput
from copilot_runtime.messages import Message
from copilot_runtime.threads.database import DatabaseThreads, build_select
from copilot_runtime.threads.postgres import transactions
from copilot_runtime.threads.postgres.connection import Link
from copilot_runtime.threads.postgres.schema import hash_key
from copilot_runtime.threads.rows import COLUMNS, build_thread, from_datetime
from copilot_runtime.threads.store import Segment, StoredRun, Thread, ThreadKey
from copilot_runtime.threads.validation import (
    check_text,
    get_thread_key,
    is_valid_key,
    log_id_in_use,
)

T = TypeVar("T")

logger = logging.getLogger("copilot_runtime.threads")

_EXPIRED_AT_ONCE = 500
"""Threads forgotten in one transaction."""


class PostgresThreads(DatabaseThreads[Link]):
    """Threads in the tables `copilot_…` of a database, which are made when they are missing.

    A server tells the others that it is alive by an advisory lock of its session, so a pooler
    such as PgBouncer must pool sessions, not transactions. While the database restarts, work
    waits for it for ten seconds.
    """

    _select = build_select("copilot_threads")
    _select_by_key = f"{_select} digest = $1"

    def __init__(self, url: str, *, max_connections: int = 10) -> None:
        super().__init__()
        self._make = partial(Link, url, max_connections)
        self._running: dict[str, _OpenRun] = {}
        self._undoing: set[asyncio.Task[None]] = set()

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
        """Forget a thread; a run that goes on is stored no more."""
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
            link, self._database = self._database, None
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

    def _key_values(self, key: ThreadKey) -> Sequence[Any]:
        return (hash_key(key),)

    async def _fetch(self, statement: str, *values: Any) -> Sequence[Sequence[Any]]:
        async def fetch(db: Any) -> Sequence[Sequence[Any]]:
            return await db.fetch(statement, *values)

        return await self._do(fetch)


class _OpenRun(NamedTuple):
    key: ThreadKey
    thread: int
    run: int

    @property
    def place(self) -> tuple[int, int]:
        return self.thread, self.run
