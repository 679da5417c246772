"""A message broker on Redis Streams, for processes on any machines.

Each process reads one stream, its inbox: `copilot:inbox:<address>`. An entry has the fields `from`
and `data`. `data` holds one or more messages, each after its length in four bytes, big endian.
Redis stores nothing durable: senders retry lost messages, and the thread store is the only source
of truth.
"""

import asyncio
import importlib
import logging
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from time import monotonic
from typing import Any

from copilot_runtime.api.bus import Carrier, Lose, PeerLost, Receive
from copilot_runtime.base.errors import ConfigurationFailed, MissingPackage
from copilot_runtime.base.outages import Outage

_INTERVAL = 0.002
"""Seconds between two entries. Messages queued meanwhile are sent in one entry. Run events arrive
in groups, one for each commit, so a longer interval would only add latency."""

_MAX_QUEUED = 4 * 1024 * 1024
"""Maximum number of queued bytes before `send` applies backpressure."""

_MOST_ENTRIES = 10_000
"""Maximum number of entries in an inbox; a process that does not read loses the oldest."""

_LIFETIME = 60
"""Expiry of the inbox of a process that ended, in seconds."""

_BLOCK = 1_000
"""Maximum time that a read blocks, in milliseconds."""

_TRIM = 1.0
"""Interval, in seconds, at which entries that were read are deleted."""

_PAUSE = 0.2
"""Delay between two connection attempts, in seconds."""

_HEAD = struct.Struct(">I")

logger = logging.getLogger(__name__)


class RedisCarrier(Carrier):
    """Sends and receives messages through one Redis server, version 5 or later.

    Args:
        url: The server's URL, such as `redis://user:password@host:6379/0` or `rediss://...`.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._address = ""
        self._receive: Receive | None = None
        self._redis: Any = None
        self._queues: defaultdict[str, list[bytes]] = defaultdict(list)
        """Queued messages, by the address of their recipient."""
        self._queued = 0
        self._flushing: asyncio.Task[None] | None = None
        self._next_flush = 0.0
        self._reading: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._outage = Outage(logger, "Redis, which carries messages,")

    @property
    def is_reachable(self) -> bool:
        return not self._outage.is_active

    async def open(self, address: str, receive: Receive, lose: Lose) -> None:
        """Connect, and read the inbox. Raises `ConfigurationFailed` if Redis does not answer."""
        del lose  # this carrier does not detect that another process ended
        redis = _import_redis()
        # with 3, redis-py does not detect that an idle connection was closed
        self._redis = redis.from_url(self._url, socket_timeout=_BLOCK / 1000 + 5, protocol=2)
        try:
            await self._redis.ping()
        except Exception as error:
            await self._redis.aclose()
            raise ConfigurationFailed(
                "Redis does not answer at the address of the setting carrier: "
                f"{str(error).rstrip('.')}.",
                hint="See whether it runs, and whether address, user and password are right.",
            ) from error
        self._address, self._receive = address, receive
        self._outage.end()
        self._reading = asyncio.create_task(self._read(), name="read inbox", context=Context())

    async def send(self, to: str, message: bytes) -> None:
        """Queue a message without delivery confirmation. Raises `PeerLost`."""
        if self._outage.is_active:
            raise PeerLost("Redis, which carries messages, cannot be reached.")
        self._queues[to] += (_HEAD.pack(len(message)), message)
        self._queued += len(message)
        if self._flushing is None:
            self._flushing = asyncio.create_task(
                self._flush(), name="send to peers", context=Context()
            )
        while self._queued > _MAX_QUEUED:
            self._room.clear()
            await self._room.wait()

    async def aclose(self) -> None:
        """Send the queued messages, and delete the inbox."""
        if self._redis is None:
            return
        if self._flushing is not None:
            await asyncio.wait([self._flushing], timeout=1)
        self._receive = None  # Python 3.11 may lose a cancellation within `wait_for` of redis-py
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        with suppress(Exception):
            await self._redis.delete(_name_inbox(self._address))
        await self._redis.aclose()

    async def _flush(self) -> None:
        """Send the queued messages, one entry per process at a time, until the queue is empty."""
        try:
            while self._queues:
                await asyncio.sleep(max(0.0, self._next_flush - monotonic()))
                self._next_flush = monotonic() + _INTERVAL
                queues, self._queues, self._queued = self._queues, defaultdict(list), 0
                self._room.set()
                await self._add_entries(queues)
        finally:
            self._flushing = None
            self._room.set()

    async def _add_entries(self, queues: Mapping[str, Sequence[bytes]]) -> None:
        """Add entries to inboxes. Lost messages are not retried here: callers ask again."""
        pipeline = self._redis.pipeline(transaction=False)
        for to, pieces in queues.items():
            entry = {"from": self._address, "data": b"".join(pieces)}
            pipeline.xadd(_name_inbox(to), entry, maxlen=_MOST_ENTRIES, approximate=True)
            pipeline.expire(_name_inbox(to), _LIFETIME)
        try:
            await pipeline.execute()
        except Exception as error:  # any error of Redis (which may be full) or the network
            self._outage.begin(error)

    async def _read(self) -> None:
        """Read new entries of the inbox and deliver their messages."""
        inbox, last = _name_inbox(self._address), "0"
        next_trim = monotonic() + _TRIM
        while self._receive is not None:
            try:
                if was_away := self._outage.is_active:
                    last = await self._find_position(last)
                    await self._try_to_write()
                found = await self._redis.xread({inbox: last}, block=_BLOCK)
            except Exception as error:  # any error of Redis or the network
                self._outage.begin(error)
                await asyncio.sleep(_PAUSE)
                continue
            if was_away:  # Redis may have become full in the meantime
                self._outage.end()
            for _, entries in found:
                for _, fields in entries:
                    self._handle_entry(fields)
                last = entries[-1][0]
            if monotonic() > next_trim:
                next_trim = monotonic() + _TRIM
                with suppress(Exception):  # the next trim deletes these entries, too
                    await self._redis.xtrim(inbox, minid=last, approximate=True)

    async def _find_position(self, last: str | bytes) -> str | bytes:
        """Return the position after the last entry that was read, or the start of a new inbox.

        Entries stay in the inbox for a while after they were read. None may be delivered twice,
        because a message may stop a run.
        """
        newest = await self._redis.xrevrange(_name_inbox(self._address), count=1)
        is_new = not newest or _parse_id(newest[0][0]) < _parse_id(last)
        return "0" if is_new else last

    async def _try_to_write(self) -> None:
        """Check that Redis accepts writes; a full server can still be read. Raises its errors."""
        entry = {"from": self._address, "data": b""}
        await self._redis.xadd(_name_inbox(self._address), entry, maxlen=_MOST_ENTRIES)

    def _handle_entry(self, fields: dict[bytes, bytes]) -> None:
        sender = fields.get(b"from", b"").decode(errors="replace")
        for message in _split(fields.get(b"data", b"")):
            if self._receive is not None:
                self._receive(sender, message)


def _split(data: bytes) -> Iterator[bytes]:
    at = 0
    while at + _HEAD.size <= len(data):
        (size,) = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        yield data[at : at + size]
        at += size


def _parse_id(id: str | bytes) -> list[int]:
    """Return the two numbers of an entry's identifier: a timestamp and a counter."""
    text = id if isinstance(id, str) else id.decode()
    return [int(part) for part in text.split("-")]


def _name_inbox(address: str) -> str:
    return f"copilot:inbox:{address}"


def _import_redis() -> Any:
    try:
        return importlib.import_module("redis.asyncio")
    except ModuleNotFoundError as error:
        raise MissingPackage("Messages by Redis", "redis", "redis") from error
