"""What the stores of threads in databases share: how they open, and the lists of threads."""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

from copilot_runtime.threads.rows import COLUMNS, Clock, build_page, build_thread
from copilot_runtime.threads.store import Thread, ThreadKey, ThreadPage, ThreadQuery, ThreadStore
from copilot_runtime.threads.validation import MOST_PER_PAGE, is_valid_key, page_size, parse_cursor

Database = TypeVar("Database")


class DatabaseThreads(ThreadStore, Generic[Database]):
    """A store in a database, which is opened when it is first needed.

    A statement takes its values as `$1`, `$2` …, each of them once and in this order.
    """

    _select: ClassVar[str]
    """Selects `COLUMNS` of the table of threads, up to its WHERE."""
    _select_by_key: ClassVar[str]
    """Selects one thread by the values of `_key_values`."""

    def __init__(self) -> None:
        self._clock = Clock()
        self._opening = asyncio.Lock()
        self._database: Database | None = None

    async def open(self) -> None:
        """Open the database, and end the runs of servers that died.

        Every other method opens it too if need be. Raises `StoreFailed`, `MissingPackage`, or
        `ConfigurationFailed` for what is not a database of threads.
        """
        await self._connect()

    async def list(self, query: ThreadQuery) -> ThreadPage:
        """Return a page of threads. Raises `Misuse` for a cursor that is none."""
        after, size = parse_cursor(query.cursor), page_size(query.limit)
        rows = await self._fetch(
            f"{self._select} owner = $1 AND (CAST($2 AS text) IS NULL OR agent = $3)"
            " AND ($4 OR NOT archived) AND (updated, id) < ($5, $6)"
            " ORDER BY updated DESC, id DESC LIMIT $7",
            *(query.owner, query.agent, query.agent, query.archived, *after, size + 1),
        )
        return build_page(rows, size)

    async def get(self, key: ThreadKey) -> Thread | None:
        """Return a thread, or None if there is none."""
        if not is_valid_key(key):
            return None
        rows = await self._fetch(self._select_by_key, *self._key_values(key))
        return build_thread(rows[0]) if rows else None

    async def everyones(self, cursor: str | None = None) -> ThreadPage:
        """Return a page of the threads of all owners, the oldest first."""
        after = parse_cursor(cursor).number if cursor else 0
        rows = await self._fetch(
            f"{self._select} id > $1 ORDER BY id LIMIT $2", after, MOST_PER_PAGE + 1
        )
        return build_page(rows, MOST_PER_PAGE)

    async def _connect(self) -> Database:
        if self._database is not None:
            return self._database
        async with self._opening:
            if self._database is None:
                self._database = await self._open_now()
        return self._database

    @abstractmethod
    async def _open_now(self) -> Database:
        """Open the database, and end the runs of servers that died."""

    @abstractmethod
    async def _fetch(self, statement: str, *values: Any) -> Sequence[Sequence[Any]]:
        """Return the rows that a statement yields."""

    @abstractmethod
    def _key_values(self, key: ThreadKey) -> Sequence[Any]:
        """Return the values by which a thread is found."""


def build_select(table: str) -> str:
    """Return the beginning of a statement that reads threads."""
    return f"SELECT {COLUMNS} FROM {table} WHERE"  # noqa: S608  # a table of ours
