"""A way to a server that can be slow, stall and break: what a network between machines does."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Literal

WayState = Literal["open", "stalled", "broken"]


class Proxy:
    """Passes on what comes to a socket of its own, in both directions.

    `delay` is how many seconds each piece is under way. While it is `stalled`, nothing arrives and
    nobody learns why; while it is `broken`, all connections end and new ones are refused. It stalls
    by itself when the bytes `stall_at` come.
    """

    def __init__(self, target: Path) -> None:
        self.delay = 0.0
        self.stall_at = b""
        self._target = target
        self._state: WayState = "open"
        self._open = asyncio.Event()
        self._open.set()
        self._connections: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def state(self) -> WayState:
        return self._state

    @state.setter
    def state(self, state: WayState) -> None:
        self._state = state
        if state == "stalled":
            self._open.clear()
        else:
            self._open.set()
        if state == "broken":
            for writer in self._connections:
                writer.transport.abort()

    @asynccontextmanager
    async def listening(self, path: Path) -> AsyncGenerator[None, None]:
        server = await asyncio.start_unix_server(self._serve, path)
        try:
            yield
        finally:
            server.close()
            self.state = "broken"
            for task in self._tasks:
                task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            await self._open.wait()
            if self._state == "broken":
                return
            to, back = await asyncio.open_unix_connection(self._target)
            self._connections.add(back)
            pumps = [
                asyncio.create_task(self._pump(reader, back)),
                asyncio.create_task(self._pump(to, writer)),
            ]
            self._tasks.update(pumps)
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
            self._tasks.difference_update(pumps)
            back.transport.abort()
            self._connections.discard(back)
        except OSError:  # nobody listens behind it
            pass
        finally:
            writer.transport.abort()
            self._connections.discard(writer)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what comes in one direction, in order and each piece after the delay."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(1000)
        sending = asyncio.create_task(self._send(pieces, writer))
        try:
            with suppress(OSError):
                while piece := await reader.read(65536):
                    if self.stall_at and self.stall_at in piece:
                        self.state = "stalled"
                    await pieces.put((monotonic() + self.delay, piece))
            await pieces.put((monotonic() + self.delay, b""))
            await sending
        finally:
            sending.cancel()

    async def _send(
        self, pieces: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while True:
                due, piece = await pieces.get()
                if (pause := due - monotonic()) > 0:
                    await asyncio.sleep(pause)
                await self._open.wait()
                if not piece:
                    return
                writer.write(piece)
                await writer.drain()
