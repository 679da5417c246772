"""A wire to a database that can be cut, or swallow what goes through it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit


class Wire:
    """Carries connections from a port of this machine to a database's socket."""

    def __init__(self, database: str) -> None:
        query = parse_qs(urlsplit(database).query)
        self._socket = f"{query['host'][0]}/.s.PGSQL.5432"
        self._schema = query["search_path"][0]
        self._server: asyncio.Server | None = None
        self._port = 0
        self._streams: set[asyncio.StreamWriter] = set()
        self._carries = {name: asyncio.Event() for name in ("questions", "answers")}
        self.release()

    @property
    def url(self) -> str:
        """The address of the database at this end of the wire."""
        return f"postgresql://postgres@127.0.0.1:{self._port}/postgres?search_path={self._schema}"

    async def join(self) -> None:
        """Carry connections, from now on or again."""
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Break all connections, and refuse new ones."""
        assert self._server is not None
        self._server.close()
        for stream in self._streams:
            stream.transport.abort()

    def hold(self, *names: str) -> None:
        """Carry no more questions or answers, or neither, without breaking a connection."""
        for name in names or self._carries:
            self._carries[name].clear()

    def release(self) -> None:
        """Carry what was held up, and what comes."""
        for event in self._carries.values():
            event.set()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(self._socket)
        self._streams |= {writer, far_writer}
        try:
            await asyncio.gather(
                self._pump(reader, far_writer, self._carries["questions"]),
                self._pump(far_reader, writer, self._carries["answers"]),
            )
        except OSError:
            pass
        finally:
            for stream in (writer, far_writer):
                stream.close()
                self._streams.discard(stream)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, carries: asyncio.Event
    ) -> None:
        while data := await reader.read(65536):
            await carries.wait()
            writer.write(data)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def join_wire(database: str) -> AsyncGenerator[Wire, None]:
    """Return a wire to a database, for a while."""
    wire = Wire(database)
    await wire.join()
    try:
        yield wire
    finally:
        wire.release()
        wire.cut()
