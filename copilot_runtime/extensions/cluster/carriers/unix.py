"""A message broker on Unix sockets, for the processes of one machine.

Each process listens on a socket beside the file of threads, `<file>-socket-<address>`, or in the
folder for temporary files if that path is too long for the system. A frame is its length in four
bytes, big endian, and a message; the first frame of a connection is the address of its sender.
"""

import asyncio
import glob
import logging
import os
import socket
import stat
import struct
import time
from contextlib import suppress
from contextvars import Context
from hashlib import blake2b
from pathlib import Path
from tempfile import gettempdir
from typing import cast

from copilot_runtime.api.bus import Carrier, Lose, PeerLost, Receive
from copilot_runtime.base.errors import ConfigurationFailed

MAX_FRAME = 64 * 1024 * 1024
"""Maximum size of one message, in bytes."""

_MAX_QUEUED = 4 * 1024 * 1024
"""Maximum number of bytes on their way to one process before `send` applies backpressure."""

_LONGEST_PATH = 100
"""Maximum length of a socket's path, in bytes: operating systems allow 104 to 108."""

_YOUNG = 60.0
"""Seconds: a younger socket without a listener may belong to a process that is starting."""

_HEAD = struct.Struct(">I")

logger = logging.getLogger(__name__)


class UnixCarrier(Carrier):
    """Sends and receives messages between processes that share a folder.

    The end of a process is detected at once, because its connections close.
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        self._address = ""
        self._receive: Receive | None = None
        self._lose: Lose | None = None
        self._server: asyncio.Server | None = None
        self._outgoing: dict[str, asyncio.Task[_Connection]] = {}
        self._incoming: set[_Connection] = set()

    async def open(self, address: str, receive: Receive, lose: Lose) -> None:
        """Listen. Raises `ConfigurationFailed` if no socket can be created."""
        self._address, self._receive, self._lose = address, receive, lose
        loop = asyncio.get_running_loop()
        path = Path()
        try:
            path = self._find_path(address)
            _remove_stale_sockets(path.parent, path.name.removesuffix(address))
            self._server = await loop.create_unix_server(self._accept, path)
            path.chmod(0o600)
        except OSError as error:
            raise ConfigurationFailed(
                f"No socket can be made at {str(path)!r}: {error.strerror or error}.",
                hint="Other server processes are reached there. Keep the file of threads on a "
                "local disk, or set carrier: none for a server that has the file for itself.",
            ) from error

    async def send(self, to: str, message: bytes) -> None:
        """Send a message. Raises `PeerLost` if no process listens at that address."""
        connection = await self._connect(to)
        connection.write(message)
        await connection.drain()

    async def aclose(self) -> None:
        """Stop listening, and close all connections."""
        if self._server is None:
            return
        self._server.close()
        for task in self._outgoing.values():
            task.cancel()
            if (connection := _get_connection(task)) is not None:
                connection.close()
        self._outgoing.clear()
        for connection in [*self._incoming]:
            connection.close()
        with suppress(OSError):
            self._find_path(self._address).unlink()
        self._server = None

    async def _connect(self, to: str) -> "_Connection":
        """Return the connection to a process, after opening it if necessary."""
        task = self._outgoing.get(to)
        if task is None:
            task = self._outgoing[to] = asyncio.create_task(
                self._open_connection(to), context=Context()
            )
        try:
            return await asyncio.shield(task)
        except (OSError, PeerLost) as error:
            if self._outgoing.get(to) is task:
                del self._outgoing[to]
            raise PeerLost(f"The server process {to} cannot be reached: {error}.") from error

    async def _open_connection(self, to: str) -> "_Connection":
        loop = asyncio.get_running_loop()
        path = self._find_path(to)
        _, connection = await loop.create_unix_connection(
            lambda: _Connection(self, to), os.fspath(path)
        )
        connection.write(self._address.encode())
        return connection

    def _accept(self) -> "_Connection":
        connection = _Connection(self, None)
        self._incoming.add(connection)
        return connection

    def handle_frame(self, connection: "_Connection", message: bytes) -> None:
        """Handle a frame of a connection; the first frame names the sender."""
        if connection.peer is None:
            connection.peer = message.decode(errors="replace")
        elif self._receive is not None:
            self._receive(connection.peer, message)

    def forget(self, connection: "_Connection") -> None:
        """Remove a connection that was closed."""
        self._incoming.discard(connection)
        peer = connection.peer
        if peer is None:
            return
        task = self._outgoing.get(peer)
        if task is not None and _get_connection(task) is connection:
            del self._outgoing[peer]
        if self._server is not None and self._lose is not None:
            self._lose(peer)

    def _find_path(self, address: str) -> Path:
        """Return the path of a process's socket: beside the file, or in a shorter folder.

        Raises `OSError` if other users could create sockets in that folder.
        """
        path = self._database.with_name(f"{self._database.name}-socket-{address}").absolute()
        if len(os.fsencode(path)) <= _LONGEST_PATH:
            return path
        digest = blake2b(os.fsencode(self._database.resolve()), digest_size=8).hexdigest()
        folder = Path(gettempdir(), f"copilot-runtime-{digest}")
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{str(folder)!r} belongs to another user.")
        return folder / address


def _remove_stale_sockets(folder: Path, prefix: str) -> None:
    """Delete the sockets of processes that were killed."""
    for path in folder.glob(f"{glob.escape(prefix)}*"):
        with suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            status = path.stat()
            if not stat.S_ISSOCK(status.st_mode) or time.time() - status.st_mtime < _YOUNG:
                continue
            probe.setblocking(False)
            try:
                probe.connect(os.fspath(path))
            except ConnectionRefusedError:
                path.unlink()


class _Connection(asyncio.Protocol):
    """A connection that passes incoming frames to a carrier.

    `peer` is None until the first frame has arrived.
    """

    def __init__(self, carrier: UnixCarrier, peer: str | None) -> None:
        self.peer = peer
        self._carrier = carrier
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._room: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop has classes of its own
        self._transport.set_write_buffer_limits(high=_MAX_QUEUED)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._transport = None
        self.resume_writing()
        self._carrier.forget(self)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= _HEAD.size:
            (size,) = _HEAD.unpack_from(buffer, at)
            if size > MAX_FRAME:
                logger.error("A frame of %d bytes is refused", size)
                self.close()
                return
            end = at + _HEAD.size + size
            if len(buffer) < end:
                break
            self._carrier.handle_frame(self, bytes(buffer[at + _HEAD.size : end]))
            at = end
        del buffer[:at]

    def pause_writing(self) -> None:
        self._room = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    def write(self, message: bytes) -> None:
        """Write a frame. Raises `PeerLost` if the connection is closed."""
        if self._transport is None or self._transport.is_closing():
            raise PeerLost(f"The server process {self.peer} has ended.")
        self._transport.writelines((_HEAD.pack(len(message)), message))

    async def drain(self) -> None:
        """Wait until the write buffer has room."""
        if (room := self._room) is not None:
            await asyncio.shield(room)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _get_connection(task: asyncio.Task[_Connection]) -> _Connection | None:
    """Return the connection that a task has opened, or None if the task is not done or failed."""
    if not task.done() or task.cancelled() or task.exception() is not None:
        return None
    return task.result()
