"""A message broker on PostgreSQL's LISTEN and NOTIFY, for processes that share a database.

Each process listens on the channel `copilot_<address>`. A notification is a text of less than 8,000
bytes: `<sender> <message> <part> <parts> <base64>`. NOTIFY holds a database lock during the commit,
so use this carrier for a few processes, and Redis for more.
"""

import asyncio
import base64
import importlib
import logging
import random
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from contextvars import Context
from itertools import count
from time import monotonic
from typing import Any

from copilot_runtime.api.bus import Carrier, Lose, PeerLost, Receive
from copilot_runtime.base.errors import MissingPackage
from copilot_runtime.base.outages import Outage

_PIECE = 5_700
"""Maximum bytes of a message in one notification: base64 turns them into 7,600."""

_INTERVAL = 0.005
"""Seconds between two statements. Messages queued meanwhile are sent by one statement."""

_MAX_QUEUED = 4 * 1024 * 1024
"""Maximum number of queued bytes before `send` applies backpressure."""

_PAUSE = (0.1, 0.5)
"""Range, in seconds, of the random delay before reconnecting."""

_PATIENCE = 10.0
"""Seconds without a response after which a connection is replaced."""

_KEEP_ALIVE = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
"""TCP keepalive (seconds, attempts): firewalls and NAT drop connections that are idle for long."""

logger = logging.getLogger(__name__)


class PostgresCarrier(Carrier):
    """Sends and receives messages over one database connection.

    Messages are lost while the connection is down; callers must retry.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._address = ""
        self._receive: Receive | None = None
        self._connection: Any = None
        self._connecting: asyncio.Task[None] | None = None
        self._queue: list[tuple[str, str]] = []
        self._queued = 0
        self._numbers = count(1)
        self._flushing: asyncio.Task[None] | None = None
        self._next_flush = 0.0
        self._room = asyncio.Event()
        self._parts: defaultdict[tuple[str, str], dict[int, bytes]] = defaultdict(dict)
        """Received parts of incomplete messages, by sender and message number."""

    @property
    def is_reachable(self) -> bool:
        return self._connecting is None or self._connecting.done()

    async def open(self, address: str, receive: Receive, lose: Lose) -> None:
        """Connect and listen. Raises the driver's exceptions."""
        del lose  # this carrier does not detect that another process ended
        self._address, self._receive = address, receive
        await self._connect()

    async def send(self, to: str, message: bytes) -> None:
        """Queue a message without delivery confirmation. Raises `PeerLost`."""
        if self._connection is None:
            raise PeerLost("The database that carries messages cannot be reached.")
        number, pieces = next(self._numbers), _cut(message)
        for part, piece in enumerate(pieces):
            text = f"{self._address} {number} {part} {len(pieces)} {piece}"
            self._queue.append((_name_channel(to), text))
            self._queued += len(text)
        if self._flushing is None:
            self._flushing = asyncio.create_task(
                self._flush(), name="notify peers", context=Context()
            )
        while self._queued > _MAX_QUEUED and self._connection is not None:
            self._room.clear()
            await self._room.wait()

    async def aclose(self) -> None:
        """Send the queued messages, and disconnect."""
        if self._flushing is not None:
            await asyncio.wait([self._flushing], timeout=1)
        self._receive = None
        if self._connecting is not None:
            self._connecting.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                await connection.close(timeout=2)

    async def _connect(self) -> None:
        asyncpg = _import_asyncpg()
        connection = await asyncpg.connect(
            self._url, timeout=_PATIENCE, server_settings=_KEEP_ALIVE
        )
        try:
            await connection.add_listener(_name_channel(self._address), self._handle_notification)
        except BaseException:
            connection.terminate()
            raise
        connection.add_termination_listener(self._on_termination)
        self._connection = connection
        if connection.is_closed():  # the connection broke before LISTEN succeeded
            self._on_termination(connection)

    def _on_termination(self, connection: Any) -> None:
        if connection is self._connection:
            self._connection = None
            self._queue.clear()
            self._queued = 0
            self._room.set()
            self._parts.clear()
            self._connecting = asyncio.get_running_loop().create_task(
                self._connect_again(), context=Context()
            )

    async def _connect_again(self) -> None:
        outage = Outage(logger, "The database that carries messages")
        while self._receive is not None:
            try:
                await self._connect()
                break
            except Exception as error:  # any error of the database, the network or the driver
                outage.begin(error)
                await asyncio.sleep(random.uniform(*_PAUSE))  # noqa: S311  # no secret
        outage.end()

    async def _flush(self) -> None:
        """Send the queued messages, including those that are added meanwhile."""
        try:
            while self._queue:
                await asyncio.sleep(max(0.0, self._next_flush - monotonic()))
                if self._connection is None or not self._queue:
                    break
                self._next_flush = monotonic() + _INTERVAL
                queue, self._queue, self._queued = self._queue, [], 0
                self._room.set()
                await self._notify(self._connection, queue)
        finally:
            self._flushing = None
            self._room.set()

    async def _notify(self, connection: Any, queue: Sequence[tuple[str, str]]) -> None:
        """Send payloads to channels. Lost messages are not retried here: callers ask again."""
        channels, texts = [list(column) for column in zip(*queue, strict=True)]
        try:
            await connection.execute(
                "SELECT pg_notify(channel, text)"
                " FROM unnest($1::text[], $2::text[]) AS new (channel, text)",
                *(channels, texts),
                timeout=_PATIENCE,
            )
        except Exception as error:  # any error of the database, the network or the driver
            reason = str(error) or type(error).__name__
            logger.warning("Messages to other processes are lost: %s", reason)
            if isinstance(error, TimeoutError):  # the old connection may be half open
                connection.terminate()

    def _handle_notification(self, connection: Any, process: int, channel: str, text: str) -> None:
        """Store one part from a notification; deliver the message once all its parts are here."""
        del connection, process, channel
        try:
            sender, number, part, parts, piece = text.split(" ", 4)
            data, total = base64.b64decode(piece), int(parts)
            if total > 1:
                pieces = self._parts[sender, number]
                pieces[int(part)] = data
                if len(pieces) < total:
                    return
                del self._parts[sender, number]
                data = b"".join(pieces[at] for at in range(total))
        except (ValueError, KeyError):
            logger.warning("Ignored a malformed message on the channel of this process")
            return
        if self._receive is not None:
            self._receive(sender, data)


def _name_channel(address: str) -> str:
    return f"copilot_{address}"


def _cut(message: bytes) -> Sequence[str]:
    """Split a message into pieces that fit into one notification each."""
    starts = range(0, max(1, len(message)), _PIECE)
    return [base64.b64encode(message[at : at + _PIECE]).decode() for at in starts]


def _import_asyncpg() -> Any:
    try:
        return importlib.import_module("asyncpg")
    except ModuleNotFoundError as error:
        raise MissingPackage("Messages by PostgreSQL", "asyncpg", "postgres") from error
