"""An HTTP/1.1 client connection: an asyncio protocol that parses with `httptools`.

The memory for a response is bounded. Between two chunks of a body, at most `MAX_HEAD` bytes of
headers, trailers, chunk extensions and interim responses are accepted; if a body is not read,
reading from the socket pauses after 128 kB. A connection has one exchange at a time. It is reused
only after a response whose framing marks its end; unexpected further bytes close it.
"""

import asyncio
import zlib
from collections.abc import Callable, Mapping
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

MAX_HEAD = 64 * 1024
"""Maximum size of a head in bytes, exceeded by one read at most; gateways send long policies."""

_HIGH_WATER = 128 * 1024
_WRITE_SIZE = 512 * 1024  # encrypting more at once would block the event loop
_DRAIN_TIME = 1.0


class ServerDisconnected(ConnectionError):
    """The server closed the connection before it started to respond."""


class InvalidResponse(OSError):
    """The response is not HTTP/1.1, or too long."""


class ClientPayloadError(ConnectionError):
    """The body of a response was cut off. The name is aiohttp's, because hints show it."""


class Connection(asyncio.Protocol):
    """A connection to one server.

    `on_free` is called when the next request may be sent, `on_lost` when the socket is closed.
    """

    def __init__(
        self,
        on_free: "Callable[[Connection], None]",
        on_lost: "Callable[[Connection], None]",
    ) -> None:
        self.free_since = 0.0
        self._loop = asyncio.get_running_loop()
        self._on_free = on_free
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        # some simple servers use such line ends
        self._parser.set_dangerous_leniencies(
            lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._response: Response | None = None
        self._headers: dict[str, str] = {}
        self._overhead = 0  # bytes since the last piece of a body
        self._keep_alive = False
        self._paused = False
        self._drain_timer: asyncio.TimerHandle | None = None

    @property
    def is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    async def send(self, head: bytes, body: bytes, timeout: float) -> "Response":
        """Send a request and return its response once the headers have arrived.

        Raises `TimeoutError` after `timeout` seconds, `ServerDisconnected`, `InvalidResponse`, or
        the `OSError` that broke the connection. The connection is closed after any exception.
        """
        response = self._response = Response(self, self._loop)
        self._overhead = 0
        self._keep_alive = False
        timer = self._loop.call_later(timeout, self.abort, TimeoutError())
        try:
            self._write(head + body[:_WRITE_SIZE])
            for start in range(_WRITE_SIZE, len(body), _WRITE_SIZE):
                await asyncio.sleep(0)
                self._write(body[start : start + _WRITE_SIZE])
            await response.wait_for_head()
        except BaseException:
            self.abort()
            raise
        finally:
            timer.cancel()
        return response

    def release(self, response: "Response") -> None:
        """Release a response that has ended or is about to end; drop its rest."""
        if self._response is not response:
            return
        if response.ended:
            self._free()
        else:
            response.drop()
            self.resume_reading()
            self._drain_timer = self._loop.call_later(_DRAIN_TIME, self.abort)

    def abort(self, error: OSError | None = None) -> None:
        """Close the socket at once, dropping unsent data; pending reads raise `error`."""
        self._keep_alive = False
        if self._drain_timer is not None:
            self._drain_timer.cancel()
            self._drain_timer = None
        if self._response is not None and not self._response.ended:
            self._response.fail(error or ClientPayloadError("the connection was closed"))
        if self._transport is not None:
            self._transport.abort()

    def abort_response(self, response: "Response") -> None:
        """Close the socket, unless it serves another exchange by now."""
        if self._response is response:
            self.abort()

    def pause_reading(self) -> None:
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    # called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None or response.ended or self._parser is None:
            self.abort()  # nothing was asked
            return
        self._overhead += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self.abort(InvalidResponse(f"its response is not valid HTTP ({error})"))
            return
        if self._overhead > MAX_HEAD and not response.ended:
            self.abort(InvalidResponse(f"its headers are larger than {MAX_HEAD} bytes"))
        elif response.ended and self._drain_timer is not None:
            self._free()

    def connection_lost(self, exc: Exception | None) -> None:
        response = self._response
        if response is not None and not response.ended:
            if not response.status:
                is_error = isinstance(exc, OSError)
                response.fail(exc if is_error else ServerDisconnected("there was no response"))
            elif exc is None and response.ends_with_connection:
                response.end()
            else:
                response.fail(ClientPayloadError("the body is incomplete"))
        self.abort()
        self._transport = self._parser = self._response = None  # they refer to each other
        self._on_lost(self)

    # called by the parser

    def on_message_begin(self) -> None:
        if self._response is None or self._response.ended:
            raise HttpParserError("bytes after the response")
        self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        # of several headers of one name, the first counts; trailers count nothing
        text = value.decode("utf-8", "surrogateescape")
        self._headers.setdefault(name.decode("latin-1").lower(), text)

    def on_headers_complete(self) -> None:
        assert self._parser is not None and self._response is not None
        status = self._parser.get_status_code()
        if status >= 200:  # else an interim response: the final one follows
            self._overhead = 0
            self._response.begin(status, self._headers)
            self._headers = {}

    def on_body(self, body: bytes) -> None:
        assert self._response is not None
        self._overhead = 0
        self._response.feed(body)

    def on_message_complete(self) -> None:
        assert self._parser is not None and self._response is not None
        if self._response.status:
            self._keep_alive = self._parser.should_keep_alive()
            self._response.end()

    # inside

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _free(self) -> None:
        """Hand the connection back, or close it if the server wants it so."""
        self._response = None
        if self._drain_timer is not None:
            self._drain_timer.cancel()
            self._drain_timer = None
        if self._keep_alive and not self.is_closing:
            self.resume_reading()
            self._on_free(self)
        else:
            self.abort()


class Response:
    """A response whose body is still arriving."""

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self.status = 0
        """0 until the headers have arrived."""
        self.headers: dict[str, str] = {}
        """The headers by lower-case name."""
        self.ended = False
        """Whether the response has ended or failed."""
        self._connection = connection
        self._loop = loop
        self._blocks: list[bytes] = []
        self._size = 0
        self._dropped = False
        self._error: OSError | None = None
        self._waiter: asyncio.Future[bytes] | None = None
        """Gets the next block, or `b""` if there is something else to look at."""

    @property
    def ends_with_connection(self) -> bool:
        """Whether the close of the connection is the end of the body."""
        coding = self.headers.get("transfer-encoding", "").lower()
        return "content-length" not in self.headers and not coding.endswith("chunked")

    async def wait_for_head(self) -> None:
        """Wait until the headers have arrived."""
        while not self.status:
            if self._error is not None:
                raise self._error
            await self._wait()

    async def readany(self) -> bytes:
        """Wait for data and return the bytes received since the last call; b"" at the end.

        If the connection breaks, the received bytes are returned first; then it raises `OSError`.
        """
        blocks = self._blocks
        while not blocks:
            if self._error is not None:
                raise self._error
            if self.ended:
                return b""
            if block := await self._wait():
                return block
        block = blocks[0] if len(blocks) == 1 else b"".join(blocks)
        blocks.clear()
        if self._size > _HIGH_WATER:
            self._connection.resume_reading()
        self._size = 0
        return block

    def release(self, *, finished: bool) -> None:
        """Return the connection to the pool if the response is complete, else close it.

        With `finished`, only the end of the response is missing; wait for it briefly.
        """
        if self.ended or finished:
            self._connection.release(self)
        else:
            self.close()

    def close(self) -> None:
        """Close the connection. A pending read raises an error."""
        self._connection.abort_response(self)

    # called by the connection

    def begin(self, status: int, headers: dict[str, str]) -> None:
        self.status = status
        self.headers = headers
        self._wake()

    def feed(self, block: bytes) -> None:
        if self._dropped:
            return
        waiter = self._waiter
        if waiter is not None and not waiter.done():  # nearly always
            waiter.set_result(block)
            return
        self._blocks.append(block)
        self._size += len(block)
        if self._size > _HIGH_WATER:
            self._connection.pause_reading()

    def end(self) -> None:
        self.ended = True
        self._wake()

    def fail(self, error: OSError) -> None:
        self._error = error
        self.end()

    def drop(self) -> None:
        """Discard unread data, and data that arrives later."""
        self._dropped = True
        self._blocks.clear()

    def _wait(self) -> "asyncio.Future[bytes]":
        self._waiter = self._loop.create_future()
        return self._waiter

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(b"")


INFLATABLE = {"gzip", "x-gzip", "deflate"}

_MAX_BLOCK = 256 * 1024  # a thousand times as much may come of a block


class InflatedResponse:
    """A compressed response, with the methods of `connection.Response`."""

    def __init__(self, response: Response) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._decoder = zlib.decompressobj(wbits=47)  # the format is in the first bytes
        self._rest = b""
        self._is_empty = True

    async def readany(self) -> bytes:
        while True:
            self._rest = self._rest or await self._response.readany()
            if not self._rest:
                if not (self._decoder.eof or self._is_empty):
                    raise ClientPayloadError("the compressed body is incomplete")
                return b""
            self._is_empty = False
            try:
                block = self._decoder.decompress(self._rest, _MAX_BLOCK)
            except zlib.error as error:
                raise ClientPayloadError(f"the body cannot be decompressed: {error}") from error
            self._rest = self._decoder.unconsumed_tail
            if block:
                return block

    def release(self, *, finished: bool) -> None:
        self._response.release(finished=finished)

    def close(self) -> None:
        self._response.close()


class BufferedResponse:
    """A response that was read to its end, with the methods of `Response`.

    A body larger than the limit is cut off above it: `StreamResponse.text` then raises.
    """

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self._rest = body

    async def readany(self) -> bytes:
        """Return the whole body, and nothing from then on."""
        body, self._rest = self._rest, b""
        return body

    def release(self, *, finished: bool) -> None:
        """Do nothing: the connection went back to its pool when the body was read."""

    def close(self) -> None:
        """Do nothing, as `release`."""
