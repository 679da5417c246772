"""Sends the events of runs of this process to those who follow them in other processes."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing

from copilot_runtime.bus.carrier import PeerLost
from copilot_runtime.errors import NotFound
from copilot_runtime.events import Event
from copilot_runtime.interfaces import Batch
from copilot_runtime.runtime.peers.message import encode_message
from copilot_runtime.threads.codec import encode

OpenLog = Callable[[str], Awaitable[AsyncGenerator[Batch, None]]]
"""Returns a log of this process from its beginning. Raises `NotFound`."""

Send = Callable[[str, bytes], Awaitable[None]]
"""Sends a message to an address. Raises `PeerLost`."""

_MOST_BYTES = 4 * 1024 * 1024
"""Bytes of one message: a long log comes in pieces."""

logger = logging.getLogger(__name__)


class LogSender:
    """Follows logs for other processes: each of them once, however many people read it there."""

    def __init__(self, open_log: OpenLog, send: Send) -> None:
        self._open_log = open_log
        self._send = send
        self._sendings: dict[tuple[str, str], _Sending] = {}
        """By the reader's address and the id of the log."""

    def start(self, reader: str, log_id: str, position: int) -> None:
        """Send a log from a position on, and go on with it until its end."""
        self.stop(reader, log_id)
        sending = _Sending(self._open_log, self._send, reader, log_id, position)
        self._sendings[reader, log_id] = sending
        sending.task.add_done_callback(lambda _: self._forget(sending))

    def check(self, reader: str, log_id: str, position: int) -> None:
        """Compare what a reader has with what it was sent by the last check, and send it again."""
        sending = self._sendings.get((reader, log_id))
        if sending is None or position < sending.checked:
            self.start(reader, log_id, position)
        else:
            sending.checked = sending.position

    def stop(self, reader: str, log_id: str) -> None:
        """Send no more of a log."""
        if (sending := self._sendings.pop((reader, log_id), None)) is not None:
            sending.task.cancel()

    def leave(self, reader: str) -> None:
        """Send nothing more to a process that is gone."""
        for address, log_id in [*self._sendings]:
            if address == reader:
                self.stop(address, log_id)

    async def aclose(self) -> None:
        """Send what the logs have to their ends, which have come, and stop the rest."""
        tasks = [sending.task for sending in self._sendings.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=1)
        for task in tasks:
            task.cancel()

    def _forget(self, sending: "_Sending") -> None:
        key = (sending.reader, sending.log_id)
        if self._sendings.get(key) is sending:
            del self._sendings[key]
        task = sending.task
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("The log %s cannot be sent", sending.log_id, exc_info=error)


class _Sending:
    """A log on its way to one reader: `position` is how far it was sent."""

    def __init__(
        self, open_log: OpenLog, send: Send, reader: str, log_id: str, position: int
    ) -> None:
        self.reader = reader
        self.log_id = log_id
        self.position = position
        self.checked = position
        """How far it was sent when the reader said last how far it is."""
        self._open_log = open_log
        self._send = send
        self.task = asyncio.create_task(self._send_log(), name=f"send:{log_id}:{reader}")

    async def _send_log(self) -> None:
        try:
            await self._send_events()
        except NotFound:
            await self._send(self.reader, encode_message("missing", self.log_id))
        except PeerLost:
            return  # whoever still reads there asks again

    async def _send_events(self) -> None:
        at = 0
        async with aclosing(await self._open_log(self.log_id)) as batches:
            async for _, events in batches:
                if (skipped := self.position - at) < len(events):
                    await self._send_pieces(events[skipped:] if skipped > 0 else events)
                at += len(events)
        await self._send(self.reader, encode_message("end", self.log_id, at))

    async def _send_pieces(self, events: Sequence[Event]) -> None:
        """Send events in messages of a bounded size, unless one alone is larger."""
        payload = encode(events)
        if len(payload) > _MOST_BYTES and len(events) > 1:
            half = len(events) // 2
            await self._send_pieces(events[:half])
            await self._send_pieces(events[half:])
            return
        after = self.position + len(events)
        head = ("events", self.log_id, self.position, after)
        await self._send(self.reader, encode_message(*head, payload=payload))
        self.position = after
