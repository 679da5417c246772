"""Exchange of metrics between workers, so that Prometheus may scrape any of them.

Each worker listens on a Unix socket in a private folder that the parent process creates. A request
is the index of a runtime in its process (four bytes, big endian); the response is a page with a
length prefix of four bytes, so that a page cut off by a dying worker is detected.
"""

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from pathlib import Path

logger = logging.getLogger(__name__)

Render = Callable[[], Awaitable[str]]
"""Renders the page of a runtime in this process, with the label of its worker."""

_PATIENCE = 1.0
"""Timeout in seconds for a worker's page. Prometheus' own default is 10."""

_WORD = struct.Struct(">I")


class WorkerMetrics:
    """Requests the metrics pages of all workers, and serves this worker's pages to them.

    `number` identifies this worker, from 1 to `count`.
    """

    def __init__(self, folder: Path, number: int, count: int) -> None:
        self.number = number
        self._folder = folder
        self._count = count
        self._pages: list[Render] = []
        self._server: asyncio.Server | None = None

    def add(self, render: Render) -> int:
        """Add a runtime of this process. Returns its index, the same in all workers."""
        self._pages.append(render)
        return len(self._pages) - 1

    async def open(self) -> None:
        """Start to serve pages, replacing an earlier worker with this number."""
        if not self._pages:
            return
        try:
            self._server = await asyncio.start_unix_server(
                self._answer, self._folder / str(self.number)
            )
        except OSError as error:
            logger.warning("The other workers cannot read the metrics of this one: %s", error)

    async def collect(self, place: int) -> Mapping[int, str | None]:
        """Return the pages of a runtime by worker number; None for workers that did not respond."""
        numbers = range(1, self._count + 1)
        pages = await asyncio.gather(*(self._find_page(number, place) for number in numbers))
        return dict(zip(numbers, pages, strict=True))

    def close(self) -> None:
        """Stop serving pages."""
        if self._server is not None:
            self._server.close()

    async def _find_page(self, number: int, place: int) -> str | None:
        # this number is requested as well: during a restart, a new worker may have it
        try:
            async with asyncio.timeout(_PATIENCE):
                return await _read_page(self._folder / str(number), place)
        except (OSError, EOFError) as error:  # among them that the time is over
            logger.debug("Worker %d did not return its metrics: %r", number, error)
        return await self._pages[place]() if number == self.number else None

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            (place,) = _WORD.unpack(await reader.readexactly(_WORD.size))
            if place < len(self._pages):  # the program may have changed, and not every worker yet
                page = (await self._pages[place]()).encode()
                writer.write(_WORD.pack(len(page)) + page)
                await writer.drain()
        except (OSError, EOFError) as error:
            logger.debug("A worker disconnected while requesting metrics: %r", error)
        finally:
            writer.close()


WORKER_METRICS: ContextVar[WorkerMetrics | None] = ContextVar("WORKER_METRICS", default=None)
"""The worker group that a runtime joins in a worker of `copilot-runtime serve --workers`."""


async def _read_page(path: Path, place: int) -> str:
    """Request the page of the worker at a socket. Raises `OSError` and `EOFError`."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(_WORD.pack(place))
        (size,) = _WORD.unpack(await reader.readexactly(_WORD.size))
        return (await reader.readexactly(size)).decode()
    finally:
        writer.close()
