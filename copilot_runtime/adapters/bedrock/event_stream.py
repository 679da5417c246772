"""Splits Amazon's event streams (`application/vnd.amazon.eventstream`) out of bytes as they arrive.

A message is its length, the length of its headers, a checksum of both, headers, payload, and a
checksum of it all: https://smithy.io/2.0/aws/amazon-eventstream.html.
"""

from functools import lru_cache
from struct import Struct
from zlib import crc32

import orjson

from copilot_runtime.errors import NetworkError

LIMIT = 24 * 1024 * 1024
"""The largest message, in bytes; Amazon sends none beyond 24 MiB."""

_PRELUDE = Struct(">III")
_LEAST = _PRELUDE.size + 4
_STRING = 7
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Type of a header's value → its bytes. Bytes (6) and strings (7) tell their own length."""


class Frames:
    """Feed it blocks of bytes, cut anywhere; each time it returns the messages that are complete.

    Each is JSON text in the shape of the API's reference: an object with one member, named for
    the event or the exception. Raises `NetworkError` for what is no such stream, or a damaged one.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.understood = False
        self._limit = limit
        self._rest: list[bytes] = []  # an incomplete message
        self._size = 0
        self._needed = _PRELUDE.size  # bytes before there is anything to do

    @property
    def between(self) -> bool:
        """True when no message has begun that lacks its end."""
        return not self._size

    def feed(self, block: bytes) -> list[bytes]:
        """Return every message that ends in this block."""
        self._rest.append(block)
        self._size += len(block)
        if self._size < self._needed:
            return []
        data = b"".join(self._rest) if len(self._rest) > 1 else block
        found: list[bytes] = []
        at, left = 0, len(data)
        self._needed = _PRELUDE.size
        while left >= _PRELUDE.size:
            size, of_headers, checksum = _PRELUDE.unpack_from(data, at)
            likely = _LEAST + of_headers <= size <= self._limit
            if left < size or not likely:
                # of a whole message, its own checksum says as much
                if crc32(data[at : at + 8]) != checksum:
                    raise self._damaged(data[at : at + 100])
                if not likely:
                    raise self._unlikely(size, of_headers)
                self._needed = size
                break
            if message := self._message(data[at : at + size], _PRELUDE.size + of_headers):
                found.append(message)
            at += size
            left -= size
        self._rest = [data[at:]] if at else [data]
        self._size = left
        return found

    def finish(self) -> list[bytes]:
        """Return nothing: a message that lacks its end is none."""
        return []

    def _message(self, message: bytes, start: int) -> bytes | None:
        """Return one whole message as JSON text, or None for one without a name.

        `start` is where its payload begins.
        """
        payload = message[start:-4]
        if crc32(message[:-4]) != int.from_bytes(message[-4:], "big"):
            raise self._damaged(message[:100])
        self.understood = True
        opening, whole = _opening(message[_PRELUDE.size : start])
        if whole:
            return opening
        return opening + (payload or b"{}") + b"}" if opening else None

    def _unlikely(self, size: int, of_headers: int) -> NetworkError:
        return NetworkError(
            f"Bedrock API error: The answer holds an event of {size} bytes.",
            hint=f"Its headers are {of_headers} bytes; up to {self._limit} in all are read.",
        )

    def _damaged(self, start: bytes) -> NetworkError:
        if self.understood:
            return NetworkError(
                "Bedrock API error: The answer was damaged on its way.",
                hint="The checksum of an event is wrong.",
            )
        return NetworkError(
            "Bedrock API error: The answer is not an event stream.",
            hint=f"Is the base URL right? It sent {start.decode(errors='replace')!r}.",
        )


@lru_cache(maxsize=64)  # a stream repeats a handful of them
def _opening(headers: bytes) -> tuple[bytes, bool]:
    """Return the JSON text before the payload, and whether it is the whole message already."""
    known = _headers(headers)
    match known.get(":message-type"):
        case "event":
            name = known.get(":event-type")
        case "exception":
            name = known.get(":exception-type")
        case "error":  # everything is in the headers
            said = {"message": known.get(":error-message"), "code": known.get(":error-code")}
            return orjson.dumps({"error": said}), True
        case _:
            name = None
    return (b"{%b:" % orjson.dumps(name) if name else b""), False


def _headers(data: bytes) -> dict[str, str]:
    """Return the headers that are strings; all of Amazon's own are. Raises `NetworkError`."""
    found: dict[str, str] = {}
    at = 0
    try:
        while at < len(data):
            end = at + 1 + data[at]
            name, kind = data[at + 1 : end].decode(), data[end]
            at = end + 1
            if kind in _SIZES:
                at += _SIZES[kind]
                continue
            length = int.from_bytes(data[at : at + 2], "big")
            if kind == _STRING:
                found[name] = data[at + 2 : at + 2 + length].decode()
            at += 2 + length
    except (IndexError, UnicodeDecodeError) as error:
        raise NetworkError(
            "Bedrock API error: The answer holds an event with unreadable headers."
        ) from error
    return found
