"""Reads the message of a call with a timeout, and decompresses it within a size limit.

gRPC would decompress a message before it checks the size: 1 MB can become 1 GB.
"""

import asyncio
import zlib
from typing import Any

from grpc.aio import ServicerContext

from copilot_runtime.base.concurrency import retrieve_exception
from copilot_runtime.transports.body import BadRequest

_GZIP = b"\x1f\x8b"
"""The magic number of gzip. No message starts with it, because its first field would have an
invalid type."""
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_UNPACKED_AT_ONCE = 1024
"""Compressed bytes that are decompressed without a thread: they yield 1 MB at most."""


class MessageReader:
    """Reads the message of a call on demand; until then, the client waits.

    The message has at most `max_bytes`, compressed and decompressed, and must arrive within
    `timeout` seconds.
    """

    def __init__(
        self, context: "ServicerContext[Any, Any]", *, max_bytes: int, timeout: float
    ) -> None:
        self._context = context
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._data: bytes | None = None

    async def read(self) -> bytes:
        """Return the message, which is cached. Raises `BadRequest`."""
        if self._data is None:
            data = await receive(self._context, self._timeout)
            if data is None:
                raise BadRequest(
                    f"There is no message, or one of more than {self._max_bytes} bytes."
                )
            self._data = await unpack(data, self._max_bytes)
        return self._data

    async def take(self) -> bytes:
        """Return the message, and remove it from the cache."""
        data = await self.read()
        self._data = None
        return data


async def receive(context: "ServicerContext[Any, Any]", timeout: float | None) -> bytes | None:
    """Return the next message as sent, or None at the end. Raises `BadRequest`.

    The read is never cancelled, because gRPC would leak the memory of a message that arrives at
    that moment. It ends with the call.
    """
    reading = asyncio.create_task(context.read())
    reading.add_done_callback(retrieve_exception)
    done, _ = await asyncio.wait((reading,), timeout=timeout)
    if not done:
        raise BadRequest(f"No message came in {timeout:g} seconds.", 408, "REQUEST_TIMEOUT")
    data: Any = reading.result()
    return data if isinstance(data, bytes) else None  # gRPC's end marker is no message


async def unpack(data: bytes, max_bytes: int) -> bytes:
    """Return the decompressed message, of at most so many bytes. Raises `BadRequest`."""
    if not data.startswith(_GZIP):
        if len(data) > max_bytes:
            raise _too_large(max_bytes)
        return data
    if len(data) <= _UNPACKED_AT_ONCE:
        return _unpack(data, max_bytes)
    return await asyncio.to_thread(_unpack, data, max_bytes)


def _unpack(data: bytes, max_bytes: int) -> bytes:
    stream = zlib.decompressobj(_GZIP_WINDOW)
    try:
        unpacked = stream.decompress(data, max_bytes + 1)
    except zlib.error as error:
        raise BadRequest("The message cannot be unpacked.") from error
    if len(unpacked) > max_bytes:
        raise _too_large(max_bytes)
    if not stream.eof or stream.unused_data:
        raise BadRequest("The message cannot be unpacked.")
    return unpacked


def _too_large(max_bytes: int) -> BadRequest:
    return BadRequest(f"The message has more than {max_bytes} bytes.", 413, "LIMIT_EXCEEDED")
