"""Threads in PostgreSQL: the store for servers on several machines."""

from collections.abc import Sequence
from functools import partial
from time import monotonic

from copilot_runtime.threads.database import DatabaseThreads
from copilot_runtime.threads.postgres.connection import Link
from copilot_runtime.threads.postgres.schema import LEASE
from copilot_runtime.threads.store import Segment
from copilot_runtime.threads.transactions import Place, write_segments


class PostgresThreads(DatabaseThreads[Link]):
    """Threads in the tables `copilot_…` of a database, which are made when they are missing.

    Other servers find out that this one is alive by an advisory lock of its session, so a pooler
    such as PgBouncer must pool sessions, not transactions. While the database restarts, work
    waits for it for ten seconds.
    """

    commit_interval = 0.005
    """Readers at other servers wait for the carrier as well, and large groups hold up each other.
    A commit is one statement here, and cheap."""

    def __init__(self, url: str, *, max_connections: int = 10) -> None:
        super().__init__()
        self.shared_url = url
        self._make = partial(Link, url, max_connections)

    async def check(self) -> None:
        """See whether threads can be read and written. Raises `StoreFailed`, or `StoreReadOnly`."""
        await (await self._connect()).check()

    async def check_run(self, log_id: str) -> None:
        """Write nothing to a log: that is refused if others have taken this server for dead."""
        is_late = True
        while is_late:  # they may have done so since the database looked
            began = monotonic()
            await self.write([Segment(log_id=log_id, events=())])
            is_late = monotonic() > began + LEASE / 2

    async def _open_now(self) -> Link:
        link = self._make(on_renewal=self._report_renewal)
        await link.open()
        try:
            await self._end_dead_runs(link)
        except BaseException:
            await link.close()
            raise
        return link

    async def _write(self, parts: Sequence[tuple[Place, Segment]]) -> None:
        link = await self._connect()
        work = partial(write_segments, segments=parts, now=self._clock.now(len(parts)))
        await link.do(work, is_one_statement=True)

    def _report_renewal(self) -> None:
        if self.on_renewal is not None:
            self.on_renewal()
