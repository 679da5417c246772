"""Sends the events of this process's runs to the processes that follow them."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from contextvars import Context
from itertools import groupby
from typing import NamedTuple, cast

from copilot_runtime.api.bus import Batch, PeerLost
from copilot_runtime.api.events import Event
from copilot_runtime.base.errors import NotFound
from copilot_runtime.extensions.cluster.message import encode_message
from copilot_runtime.threads.codec import encode_parts

OpenLog = Callable[[str], Awaitable[AsyncGenerator[Batch, None]]]
"""Opens a log of this process at its beginning. Raises `NotFound`."""

Send = Callable[[str, bytes], Awaitable[None]]
"""Sends a message to an address. Raises `PeerLost`."""

_MOST_BYTES = 4 * 1024 * 1024
"""Maximum bytes of events in one message: a long log is split."""

_MOST_EVENTS = 10_000
"""Maximum number of events queued for one process before its logs are read further."""

logger = logging.getLogger(__name__)


class LogSender:
    """Follows logs for other processes: once per process, however many readers it has there."""

    def __init__(self, open_log: OpenLog, send: Send) -> None:
        self._open_log = open_log
        self._send = send
        self._sendings: dict[tuple[str, str], _Sending] = {}
        """Sendings, by the reader's address and the log's identifier."""
        self._outboxes: dict[str, _Outbox] = {}
        """Outboxes with queued messages or followed logs, by the reader's address."""

    def start(self, reader: str, log_id: str, position: int) -> None:
        """Send a log from a position, and follow it until its end."""
        self.stop(reader, log_id)
        outbox = self._outboxes.get(reader)
        if outbox is None:
            outbox = self._outboxes[reader] = _Outbox(self._send, reader, self._finish)
        sending = _Sending(self._open_log, outbox, log_id, position)
        self._sendings[reader, log_id] = sending
        outbox.logs += 1
        sending.task.add_done_callback(lambda _: self._forget(outbox, sending))

    def check(self, reader: str, log_id: str, position: int) -> None:
        """Compare the reader's positions with those of its last check.

        Resend events that were lost.
        """
        sending = self._sendings.get((reader, log_id))
        if sending is None or position < sending.checked:
            self.start(reader, log_id, position)
        else:
            sending.checked = sending.position

    def stop(self, reader: str, log_id: str) -> None:
        """Stop sending a log."""
        if (sending := self._sendings.pop((reader, log_id), None)) is not None:
            sending.task.cancel()

    def leave(self, reader: str) -> None:
        """Stop sending to a process that ended."""
        for address, log_id in [*self._sendings]:
            if address == reader:
                self.stop(address, log_id)

    async def aclose(self) -> None:
        """Send the logs that have ended up to their ends, and cancel the others."""
        following = [sending.task for sending in self._sendings.values()]
        if following:
            await asyncio.wait(following, timeout=1)
        sending = [outbox.task for outbox in self._outboxes.values() if outbox.task is not None]
        if sending:
            await asyncio.wait(sending, timeout=1)
        for task in (*following, *sending):
            task.cancel()

    def _forget(self, outbox: "_Outbox", sending: "_Sending") -> None:
        key = (outbox.reader, sending.log_id)
        if self._sendings.get(key) is sending:
            del self._sendings[key]
        task = sending.task
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("The log %s cannot be sent", sending.log_id, exc_info=error)
        outbox.logs -= 1
        if outbox.task is None:
            self._finish(outbox)

    def _finish(self, outbox: "_Outbox") -> None:
        """Remove an outbox that is empty and follows no log."""
        if outbox.is_lost:  # a process that still reads the log asks again
            self.leave(outbox.reader)
        if (outbox.is_lost or not outbox.logs) and self._outboxes.get(outbox.reader) is outbox:
            del self._outboxes[outbox.reader]


class _Sending:
    """The transfer of a log to one reader: `position` is that of the next event to send."""

    def __init__(self, open_log: OpenLog, outbox: "_Outbox", log_id: str, position: int) -> None:
        self.log_id = log_id
        self.position = position
        self.checked = position
        """The send position at the time of the reader's last check."""
        self._open_log = open_log
        self._outbox = outbox
        self.task = asyncio.create_task(
            self._send_log(), name=f"send:{log_id}:{outbox.reader}", context=Context()
        )

    async def _send_log(self) -> None:
        try:
            await self._send_events()
        except NotFound:
            self._outbox.add_message(encode_message("missing", self.log_id))

    async def _send_events(self) -> None:
        at, outbox = 0, self._outbox
        async with aclosing(await self._open_log(self.log_id)) as batches:
            async for _, events in batches:
                if (skipped := self.position - at) < len(events):
                    new = events[skipped:] if skipped > 0 else events
                    outbox.add_events(self.log_id, self.position, new)
                    self.position += len(new)
                    if outbox.is_full:
                        await outbox.wait_for_room()
                at += len(events)
        outbox.add_message(encode_message("end", self.log_id, at))


class _Piece(NamedTuple):
    """Events of a log, starting at a position."""

    log_id: str
    position: int
    events: Sequence[Event]


class _Outbox:
    """The queue for one process: events of several logs that are ready together make one message.

    Messages reach their reader in order. `finish` is called when the queue is empty.
    """

    def __init__(self, send: Send, reader: str, finish: "Callable[[_Outbox], None]") -> None:
        self.reader = reader
        self.logs = 0
        """Number of logs that the reader follows."""
        self.task: asyncio.Task[None] | None = None
        """The task that sends the queue."""
        self.is_lost = False
        """True if the reader could not be reached."""
        self._send = send
        self._finish = finish
        self._queue: list[_Piece | bytes] = []
        self._events = 0
        self._room: asyncio.Future[None] | None = None

    @property
    def is_full(self) -> bool:
        """True if so many events are queued that logs should not be read further."""
        return self._events > _MOST_EVENTS

    def add_events(self, log_id: str, position: int, events: Sequence[Event]) -> None:
        """Queue events. They are sent after all logs that are ready now have queued theirs."""
        self._events += len(events)
        self._add(_Piece(log_id, position, events))

    def add_message(self, message: bytes) -> None:
        """Queue another message."""
        self._add(message)

    async def wait_for_room(self) -> None:
        """Wait until the current queue has been sent."""
        if self._room is None:
            self._room = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._room)

    def _add(self, item: _Piece | bytes) -> None:
        if self.is_lost:
            return
        self._queue.append(item)
        if self.task is None:
            self.task = asyncio.create_task(
                self._send_queue(), name=f"send:{self.reader}", context=Context()
            )

    async def _send_queue(self) -> None:
        try:
            while self._queue:
                queue, self._queue, self._events = self._queue, [], 0
                for is_message, items in groupby(queue, lambda item: isinstance(item, bytes)):
                    if is_message:
                        for message in items:
                            await self._send(self.reader, cast("bytes", message))
                    else:
                        await self._send_pieces(cast("list[_Piece]", [*items]))
                self._make_room()
        except PeerLost:
            self.is_lost = True
        finally:
            self.task = None
            self._make_room()
            self._finish(self)

    async def _send_pieces(self, pieces: Sequence[_Piece]) -> None:
        """Send events in messages of a bounded size; a single larger event gets its own message."""
        payload = encode_parts((at, piece.events) for at, piece in enumerate(pieces))
        if len(payload) > _MOST_BYTES and (halves := _split(pieces)):
            for half in halves:
                await self._send_pieces(half)
            return
        heads = [(log_id, position, position + len(events)) for log_id, position, events in pieces]
        await self._send(self.reader, encode_message("events", heads, payload=payload))

    def _make_room(self) -> None:
        if self._room is not None:
            self._room.set_result(None)
            self._room = None


def _split(pieces: Sequence[_Piece]) -> Sequence[Sequence[_Piece]]:
    """Split pieces into two halves; return nothing if there is a single event."""
    if half := len(pieces) // 2:
        return pieces[:half], pieces[half:]
    [(log_id, position, events)] = pieces
    if half := len(events) // 2:
        rest = _Piece(log_id, position + half, events[half:])
        return [_Piece(log_id, position, events[:half])], [rest]
    return ()
