"""A way to a server that can be cut in the middle, as by a network that breaks."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_BLOCK = 700
"""Bytes passed on at once: less than an event, so that a cut may come within one."""


@dataclass(slots=True)
class Proxy:
    """Passes bytes on to a server, and hangs up once where `cut_at` has been said."""

    url: str
    cut_at: list[bytes] = field(default_factory=list[bytes])
    """Each is waited for in turn, and the connection cut in the block it comes in."""
    refusing: bool = False
    """Nobody gets in any more, and who is inside is thrown out at the next word."""
    cuts: int = 0
    requests: list[bytes] = field(default_factory=list[bytes])
    """The first lines of all requests."""
    _host: str = ""
    _port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        there = asyncio.create_task(self._ask(reader, far_writer))
        try:
            await self._answer(far_reader, writer)
        finally:
            there.cancel()
            far_writer.close()
            writer.close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while block := await reader.read(65536):
                self.requests += [
                    line for line in block.split(b"\r\n") if line.endswith(b" HTTP/1.1")
                ]
                writer.write(block)
                await writer.drain()
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        before = b""
        with suppress(ConnectionError):
            while block := await reader.read(_BLOCK):
                seen = before + block
                if self.refusing or (self.cut_at and self.cut_at[0] in seen):
                    if self.cut_at:
                        self.cut_at.pop(0)
                    self.cuts += 1
                    # part of it arrives
                    writer.write(block[: len(block) // 2])
                    await writer.drain()
                    writer.close()
                    return
                before = seen[-100:]
                writer.write(block)
                await writer.drain()


@asynccontextmanager
async def proxied(url: str) -> AsyncGenerator[Proxy, None]:
    """Listen on a free port for a server."""
    parts = urlsplit(url)
    proxy = Proxy("", _host=parts.hostname or "", _port=parts.port or 80)
    connections: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(proxy.serve(reader, writer))
        connections.add(task)
        task.add_done_callback(connections.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        for task in [*connections]:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
