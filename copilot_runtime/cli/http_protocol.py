"""uvicorn's HTTP protocol, which waits only so long for the head of a request, of a bounded size.

And sockets that wait only so long for a machine that has vanished.
"""

import asyncio
import socket
from math import ceil
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

_LONGEST_URL = 64 * 1024
"""Bytes; of longer ones uvicorn's parser finds no path."""
_LONGEST_PATH = 16 * 1024
"""Bytes before the question mark: uvicorn decodes them itself, in a millisecond for 20 KB."""
_LONGEST_HEADERS = 64 * 1024
"""Bytes of all headers of a request, and of trailers."""
_MOST_HEADERS = 200
_TOO_LARGE = b"The headers of the request are too large, or too many."
_MOST_SECONDS = 32_767
_MOST_MILLISECONDS = 2**31 - 1
"""What the system takes for a time between signs of life, and for a silence."""


def limit_reading(seconds: float) -> type[asyncio.Protocol]:
    """Return the protocol that closes a connection on which no request begins for that long.

    Or one with a head so large that a stranger could fill the memory with it.

    uvicorn does so only after a first answer, and only while no byte of another request has come:
    a client that connects and is silent, or sends half a head, keeps its socket for ever.
    """
    protocol: Any = AutoHTTPProtocol

    class LimitedReading(protocol):
        _headers_bytes = 0
        _headers_count = 0
        _unread = 0
        """Bytes of which the parser has said nothing yet: it copies them with each piece."""

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._wait_for_request()

        def connection_lost(self, exc: Exception | None) -> None:
            self._reading.cancel()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            self._unread += len(data)
            super().data_received(data)
            if self._unread > _LONGEST_HEADERS and not self.transport.is_closing():
                self._refuse_headers()

        def on_message_begin(self) -> None:
            self._unread = self._headers_bytes = self._headers_count = 0
            super().on_message_begin()

        def on_header(self, name: bytes, value: bytes) -> None:
            """Take a header, also one behind the body. Raises `ValueError` for one too many."""
            self._unread = 0
            self._headers_count += 1
            self._headers_bytes += len(name) + len(value)
            if self._has_large_head():
                raise ValueError(_TOO_LARGE.decode())
            super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._unread = 0
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._unread = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._unread = 0
            super().on_message_complete()

        def send_400_response(self, msg: str) -> None:
            """Answer what cannot be parsed, and close."""
            if self._has_large_head():
                self._refuse_headers()
            else:
                super().send_400_response(msg)

        def _has_large_head(self) -> bool:
            return self._headers_bytes > _LONGEST_HEADERS or self._headers_count > _MOST_HEADERS

        def _refuse_headers(self) -> None:
            head = (
                b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
                b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n\r\n"
            )
            self.transport.write(head % len(_TOO_LARGE) + _TOO_LARGE)
            self.transport.close()

        def on_url(self, url: bytes) -> None:
            """Take a piece of the URL; one that does not end would be copied with each piece."""
            self._unread = 0
            super().on_url(url)
            size = len(self.url)
            if size > _LONGEST_PATH and (
                size > _LONGEST_URL or b"?" not in self.url[: _LONGEST_PATH + 1]
            ):
                raise ValueError("The URL is too long.")  # uvicorn answers 400, and closes

        def _wait_for_request(self) -> None:
            self._reading = self.loop.call_later(seconds, self._check_reading, self.cycle)

        def _check_reading(self, cycle: Any) -> None:
            """Close the connection unless a request has begun since, or is still answered."""
            if self.transport.get_protocol() is not self:  # it is a WebSocket now
                return
            if self.cycle is cycle and (cycle is None or cycle.response_complete):
                self.transport.close()
            else:
                self._wait_for_request()

    return LimitedReading


def limit_silence(listener: socket.socket, seconds: float) -> None:
    """Let the connections of a listener end after that long without a sign of the other machine.

    To one that has lost its network, what is sent would be sent again for a quarter of an hour;
    and a connection on which nothing is sent stays for ever. Does what the system can.
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
