"""The metrics of all workers of one server, whichever of them Prometheus reaches.

Each worker listens at a Unix socket in a folder that their parent has made for them alone. A
question is the place of a runtime in its process, in four bytes, big endian; the answer is a page
behind its length in four bytes: without it, the page of a worker that dies could be cut off.
"""

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from pathlib import Path

logger = logging.getLogger(__name__)

Render = Callable[[], Awaitable[str]]
"""Returns the page of a runtime of this process, with the label of its worker."""

_PATIENCE = 1.0
"""Seconds that a worker has for its page. Prometheus itself waits for 10."""

_WORD = struct.Struct(">I")


class WorkerMetrics:
    """Asks all workers of a server for their pages, and answers them.

    `number` is that of this worker, of `count` that there are from 1 on.
    """

    def __init__(self, folder: Path, number: int, count: int) -> None:
        self.number = number
        self._folder = folder
        self._count = count
        self._pages: list[Render] = []
        self._server: asyncio.Server | None = None

    def add(self, render: Render) -> int:
        """Add a runtime of this process. Returns its place, the same in all workers."""
        self._pages.append(render)
        return len(self._pages) - 1

    async def open(self) -> None:
        """Answer from now on, in place of an older worker with this number, if there is a page."""
        if not self._pages:
            return
        try:
            self._server = await asyncio.start_unix_server(
                self._answer, self._folder / str(self.number)
            )
        except OSError as error:
            logger.warning("The other workers cannot read the metrics of this one: %s", error)

    async def collect(self, place: int) -> Mapping[int, str | None]:
        """Return the pages of a runtime by the numbers of workers; None if one has not answered."""
        numbers = range(1, self._count + 1)
        pages = await asyncio.gather(*(self._find_page(number, place) for number in numbers))
        return dict(zip(numbers, pages, strict=True))

    def close(self) -> None:
        """Answer no more."""
        if self._server is not None:
            self._server.close()

    async def _find_page(self, number: int, place: int) -> str | None:
        # also that of this number is asked for: while this worker ends, another one may have it
        try:
            async with asyncio.timeout(_PATIENCE):
                return await _read_page(self._folder / str(number), place)
        except (OSError, EOFError) as error:  # among them that the time is over
            logger.debug("Worker %d says nothing about its metrics: %r", number, error)
        return await self._pages[place]() if number == self.number else None

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            (place,) = _WORD.unpack(await reader.readexactly(_WORD.size))
            if place < len(self._pages):  # the program may have changed, and not every worker yet
                page = (await self._pages[place]()).encode()
                writer.write(_WORD.pack(len(page)) + page)
                await writer.drain()
        except (OSError, EOFError) as error:
            logger.debug("A worker that asked for metrics has gone: %r", error)
        finally:
            writer.close()


WORKER_METRICS: ContextVar[WorkerMetrics | None] = ContextVar("WORKER_METRICS", default=None)
"""What a runtime joins when it starts in a worker of `copilot-runtime serve --workers`."""


async def _read_page(path: Path, place: int) -> str:
    """Return the page of the worker at a socket. Raises `OSError` and `EOFError`."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(_WORD.pack(place))
        (size,) = _WORD.unpack(await reader.readexactly(_WORD.size))
        return (await reader.readexactly(size)).decode()
    finally:
        writer.close()
