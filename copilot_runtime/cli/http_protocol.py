"""uvicorn's HTTP protocol with a timeout and a size limit for request heads.

Also enables TCP keep-alive, so that connections to vanished machines time out.
"""

import asyncio
import socket
from itertools import chain
from math import ceil
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_LONGEST_PATH = 16 * 1024
"""Maximum length of a path, in bytes; uvicorn decodes it in Python, 20 KB in a millisecond."""
_LONGEST_HEADERS = 64 * 1024
"""Maximum total size of a request's headers and trailers, in bytes, and length of its URL:
uvicorn's parser finds no path in longer ones."""
_MOST_HEADERS = 200
_TOO_LARGE = b"The headers of the request are too large, or too many."
_MOST_SECONDS = 32_767
_MOST_MILLISECONDS = 2**31 - 1
"""The operating system's maximum for keep-alive intervals and timeouts."""


def limit_reading(seconds: float) -> type[asyncio.Protocol]:
    """Return a protocol class that closes connections without a request for `seconds`.

    It also closes connections whose request head is too large, so that clients cannot exhaust the
    memory.

    uvicorn itself only closes idle connections after a first response, and only until a byte of
    another request has arrived: a client that connects silently, or sends half a head, would keep
    its socket forever.
    """

    class LimitedReading(HttpToolsProtocol):
        _is_reading = False
        """`True` from the first byte of a request to its last."""
        _unread = 0
        """Number of bytes that the parser still buffers: it copies them with each chunk."""
        _measured = 0
        """Number of headers and trailers whose size was within the limits."""

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._wait_for_request()

        def connection_lost(self, exc: Exception | None) -> None:
            self._reading.cancel()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            self._unread += len(data)
            super().data_received(data)
            if (
                self._unread > _LONGEST_HEADERS or self._has_large_head()
            ) and not self.transport.is_closing():
                self._refuse_headers()

        def on_message_begin(self) -> None:
            self._is_reading = True
            self._unread = self._measured = 0
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            """Handle the end of a head. Raises `ValueError` if it exceeds the limits."""
            self._unread = 0
            if self._has_large_head():
                raise ValueError(_TOO_LARGE.decode())
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._unread = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            """Handle the end of a request. Raises `ValueError` for too many trailers."""
            self._unread = 0
            if self._has_large_head():
                raise ValueError(_TOO_LARGE.decode())
            self._is_reading = False
            super().on_message_complete()

        def send_400_response(self, msg: str) -> None:
            """Respond with 400 to a malformed request, and close the connection."""
            if self._has_large_head():
                self._refuse_headers()
            else:
                super().send_400_response(msg)

        def _has_large_head(self) -> bool:
            """Return `True` if the headers and trailers of an incomplete request are too large."""
            count = len(self.headers)
            if not self._is_reading or count == self._measured:
                return False
            self._measured = count
            size = sum(map(len, chain.from_iterable(self.headers)))
            return count > _MOST_HEADERS or size > _LONGEST_HEADERS

        def _refuse_headers(self) -> None:
            head = (
                b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
                b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n\r\n"
            )
            self.transport.write(head % len(_TOO_LARGE) + _TOO_LARGE)
            self.transport.close()

        def on_url(self, url: bytes) -> None:
            """Handle a chunk of the URL; an endless URL would be copied with each chunk."""
            self._unread = 0
            super().on_url(url)
            size = len(self.url)
            if size > _LONGEST_PATH and (
                size > _LONGEST_HEADERS or b"?" not in self.url[: _LONGEST_PATH + 1]
            ):
                raise ValueError(
                    "The URL is too long."
                )  # uvicorn responds with 400 and closes the connection

        def _wait_for_request(self) -> None:
            self._reading = self.loop.call_later(seconds, self._check_reading, self.cycle)

        def _check_reading(self, cycle: Any) -> None:
            """Close the connection unless a request has started or is still being answered."""
            if (
                self.transport.get_protocol() is not self
            ):  # the connection was upgraded to a WebSocket
                return
            if self.cycle is cycle and (cycle is None or cycle.response_complete):
                self.transport.close()
            else:
                self._wait_for_request()

    return LimitedReading


def limit_silence(listener: socket.socket, seconds: float) -> None:
    """Enable TCP keep-alive and a timeout for unacknowledged data on a listener's connections.

    Without it, the system would resend data to a vanished machine for a quarter of an hour, and an
    idle connection would stay open forever. Options that the platform lacks are skipped.
    """
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {
        "TCP_USER_TIMEOUT": min(ceil(seconds * 1000), _MOST_MILLISECONDS),
        "TCP_KEEPIDLE": min(ceil(seconds / 2), _MOST_SECONDS),
        "TCP_KEEPINTVL": min(ceil(seconds / 8), _MOST_SECONDS),
    }
    for name, value in options.items():
        if (option := getattr(socket, name, None)) is not None:
            listener.setsockopt(socket.IPPROTO_TCP, option, value)
