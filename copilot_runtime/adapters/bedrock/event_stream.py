"""Decodes Amazon's event streams (`application/vnd.amazon.eventstream`) incrementally.

A message is its length, the length of its headers, a checksum of both, headers, payload, and a
checksum of it all: https://smithy.io/2.0/aws/amazon-eventstream.html. `botocore` parses the
headers, of which a stream repeats a handful; its `EventStreamBuffer` would cost six times as much.
"""

from functools import lru_cache
from importlib import import_module
from struct import Struct
from struct import error as struct_error
from zlib import crc32

import orjson

from copilot_runtime.base.errors import NetworkError

LIMIT = 24 * 1024 * 1024
"""The largest message, in bytes; Amazon sends none beyond 24 MiB."""

_PRELUDE = Struct(">III")
_CHECKSUM = Struct(">I")
_FRAME = _PRELUDE.size + _CHECKSUM.size


class Frames:
    """An incremental decoder: `feed` takes blocks of bytes and returns the complete messages.

    Each is JSON text in the shape of the API's reference: an object with one member, named after
    the event or the exception. Raises `NetworkError` for another format or a damaged stream.
    """

    is_between_events = False  # nothing may stand there

    def __init__(self, limit: int = LIMIT) -> None:
        self.is_event_stream = False
        self._limit = limit
        self._rest = bytearray()  # the beginning of a message, and the bytes needed to go on
        self._needed = _PRELUDE.size

    def feed(self, block: bytes) -> list[bytes]:
        """Return every message that ends in this block."""
        self._rest += block
        if len(self._rest) < self._needed:
            return []
        data, start, self._needed = bytes(self._rest), 0, _PRELUDE.size
        messages: list[bytes] = []
        while len(data) - start >= _PRELUDE.size:
            size, headers_size, checksum = _PRELUDE.unpack_from(data, start)
            if size > len(data) - start or size > self._limit or headers_size > size - _FRAME:
                self._check_prelude(data[start:], size, headers_size, checksum)
                self._needed = size
                break
            end = start + size - _CHECKSUM.size
            if crc32(data[start:end]) != _CHECKSUM.unpack_from(data, end)[0]:
                raise self._damage_error(data[start:])
            payload = start + _PRELUDE.size + headers_size
            opening, is_whole = _opening(data[start + _PRELUDE.size : payload])
            if opening:
                text = b"" if is_whole else (data[payload:end] or b"{}") + b"}"
                messages.append(opening + text)
            start = end + _CHECKSUM.size
            self.is_event_stream = True
        del self._rest[:start]
        return messages

    def finish(self) -> list[bytes]:
        """Return an empty list: an incomplete message is discarded."""
        return []

    def _check_prelude(self, data: bytes, size: int, headers_size: int, checksum: int) -> None:
        """Raise `NetworkError` if the prelude is damaged or announces too large a message."""
        if crc32(data[:8]) != checksum:
            raise self._damage_error(data)
        if headers_size + _FRAME > size or size > self._limit:
            raise NetworkError(
                f"Bedrock API error: The answer holds an event of {size} bytes.",
                hint=f"Its headers are {headers_size} bytes; up to {self._limit} in all are read.",
            )

    def _damage_error(self, data: bytes) -> NetworkError:
        if self.is_event_stream:
            return NetworkError(
                "Bedrock API error: The answer was damaged on its way.",
                hint="The checksum of an event is wrong.",
            )
        return NetworkError(
            "Bedrock API error: The answer is not an event stream.",
            hint=f"Is the base URL right? It sent {data[:100].decode(errors='replace')!r}.",
        )


@lru_cache(maxsize=64)  # a stream repeats a handful of them
def _opening(header_bytes: bytes) -> tuple[bytes, bool]:
    """Return the JSON text before the payload, and whether it is already the whole message."""
    eventstream = import_module("botocore.eventstream")
    try:
        headers = eventstream.EventStreamHeaderParser().parse(header_bytes)
    except (eventstream.ParserError, KeyError, struct_error, UnicodeDecodeError) as error:
        raise NetworkError(
            "Bedrock API error: The answer holds an event with unreadable headers."
        ) from error
    match headers.get(":message-type"):
        case "event":
            name = headers.get(":event-type")
        case "exception":
            name = headers.get(":exception-type")
        case "error":  # everything is in the headers
            error = {"message": headers.get(":error-message"), "code": headers.get(":error-code")}
            return orjson.dumps({"error": error}), True
        case _:
            name = None
    return (b"{%b:" % orjson.dumps(name) if name else b""), False
