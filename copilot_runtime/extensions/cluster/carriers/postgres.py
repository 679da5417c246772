"""Messages between processes that share a database of PostgreSQL, by LISTEN and NOTIFY.

Each process listens on the channel `copilot_<address>`. A notification is a text of less than
8,000 bytes: `<sender> <message> <part> <parts> <base64>`. NOTIFY holds a lock of the database while
it commits, so this is for a few processes; more of them have a carrier of Redis.
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

from copilot_runtime.api.carrier import Carrier, Lose, PeerLost, Receive
from copilot_runtime.base.errors import MissingPackage
from copilot_runtime.base.outages import Outage

_PIECE = 5_700
"""Bytes of a message in one notification: base64 makes 7,600 of them."""

_INTERVAL = 0.005
"""Seconds between two statements: what comes meanwhile is sent by one."""

_MAX_QUEUED = 4 * 1024 * 1024
"""Bytes that wait to be sent before `send` waits."""

_PAUSE = (0.1, 0.5)
"""Seconds between two attempts to connect again, at random in this range."""

_PATIENCE = 10.0
"""Seconds after which a connection that does not answer is given up for another one."""

_KEEP_ALIVE = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
"""Seconds and times: what is between forgets a connection on which nothing comes for long."""

logger = logging.getLogger(__name__)


class PostgresCarrier(Carrier):
    """Carries messages over one connection to a database.

    Messages are lost while the connection is: whoever needs them asks again.
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
        """What has come of messages in several parts, by their sender and number."""

    @property
    def is_reachable(self) -> bool:
        return self._connecting is None or self._connecting.done()

    async def open(self, address: str, receive: Receive, lose: Lose) -> None:
        """Connect and listen. Raises what the database raises."""
        del lose  # the end of another process is not noticed here
        self._address, self._receive = address, receive
        await self._connect()

    async def send(self, to: str, message: bytes) -> None:
        """Queue a message; nobody learns here whether it arrives. Raises `PeerLost`."""
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
        """Send what is queued, and disconnect."""
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
            await connection.add_listener(_name_channel(self._address), self._take)
        except BaseException:
            connection.terminate()
            raise
        connection.add_termination_listener(self._on_termination)
        self._connection = connection
        if connection.is_closed():  # it broke before anybody listened
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
            except Exception as error:  # of the database, the network or the driver
                outage.begin(error)
                await asyncio.sleep(random.uniform(*_PAUSE))  # noqa: S311  # no secret
        outage.end()

    async def _flush(self) -> None:
        """Send what is queued, and what comes meanwhile."""
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
        """Send texts to channels. What is lost is asked for again by whoever needs it."""
        channels, texts = [list(column) for column in zip(*queue, strict=True)]
        try:
            await connection.execute(
                "SELECT pg_notify(channel, text)"
                " FROM unnest($1::text[], $2::text[]) AS new (channel, text)",
                *(channels, texts),
                timeout=_PATIENCE,
            )
        except Exception as error:  # of the database, the network or the driver
            reason = str(error) or type(error).__name__
            logger.warning("Messages to other processes are lost: %s", reason)
            if isinstance(error, TimeoutError):  # nor does anything come by it, perhaps
                connection.terminate()

    def _take(self, connection: Any, process: int, channel: str, text: str) -> None:
        """Take a notification, and pass a message on once all of its parts are here."""
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
            logger.warning("What came on the channel of this process is no message")
            return
        if self._receive is not None:
            self._receive(sender, data)


def _name_channel(address: str) -> str:
    return f"copilot_{address}"


def _cut(message: bytes) -> Sequence[str]:
    """Return a message in pieces that fit a notification."""
    starts = range(0, max(1, len(message)), _PIECE)
    return [base64.b64encode(message[at : at + _PIECE]).decode() for at in starts]


def _import_asyncpg() -> Any:
    try:
        return importlib.import_module("asyncpg")
    except ModuleNotFoundError as error:
        raise MissingPackage("Messages by PostgreSQL", "asyncpg", "postgres") from error
