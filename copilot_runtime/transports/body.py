"""Read request bodies, for any protocol."""

import asyncio
import logging
import re
from collections.abc import Mapping
from itertools import islice

from starlette.types import Receive

logger = logging.getLogger(__name__)


class BadRequest(Exception):
    """A malformed request. `status` is the HTTP status of the response."""

    def __init__(
        self, message: str, status: int = 400, code: str = "BAD_REQUEST", *, allow: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.allow = allow

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the response."""
        if self.status == 408:  # the rest of the body belongs to no request
            return {"connection": "close"}
        return {"allow": self.allow} if self.allow else {}


class ClientGone(Exception):
    """The client disconnected before the end of its request."""


_MOST_PASSED_OVER = 64 * 1024 * 1024


async def read_body(
    receive: Receive, headers: Mapping[str, str], limit: int, timeout: float
) -> bytes:
    """Return the body.

    Raises `BadRequest`: 413 above `limit` bytes, 408 after `timeout` seconds without data.

    The rest of an oversized body is read and discarded: a client that is still sending when the
    connection closes never sees the response.
    """
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit + _MOST_PASSED_OVER:
        raise _too_large(limit)
    pieces: list[bytes] = []
    size = 0
    while size <= limit + _MOST_PASSED_OVER:
        try:
            async with asyncio.timeout(timeout):
                message = await receive()
        except TimeoutError:
            pieces.clear()  # the error's traceback must not keep the body in memory
            raise BadRequest(
                f"No data of the request arrived for {timeout:g} seconds.", 408, "REQUEST_TIMEOUT"
            ) from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece: bytes = message.get("body", b"")
        size += len(piece)
        if size <= limit:
            pieces.append(piece)
        else:
            pieces.clear()
        if not message.get("more_body", False):
            break
    if size > limit:
        raise _too_large(limit)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def check_values(data: bytes, most: int) -> None:
    """Raise `BadRequest` (413) for a JSON body with more values than `most`."""
    if has_more_values(data, most):
        message = f"The request body has more than {most} values."
        logger.warning("Refused a request: %s (Raise max_values in the settings.)", message)
        raise BadRequest(message, 413, "LIMIT_EXCEEDED")


def has_more_values(data: bytes, most: int) -> bool:
    """Return `True` if JSON has more than `most` values, without parsing it.

    A parsed value takes up to a hundred times its size in bytes. Each value starts after a bracket
    or a comma outside of a string. Short bodies cannot have many values, and most others have few
    of these characters; only the rest is scanned.
    """
    if len(data) <= most or sum(map(data.count, (b",", b"[", b"{"))) <= most:
        return False
    data = data.replace(rb"\\", b"").replace(rb"\"", b"")
    matches = _VALUES.finditer(data)  # the last match is the end after the last value
    return next(islice(matches, most + 1, None), None) is not None


_VALUES = re.compile(rb"""(?: [^",\[{]++ | "[^"]*+ (?:"|\Z) ){1,6}+ [,\[{]? | [,\[{]""", re.VERBOSE)
"""Matches one comma or bracket and the text before it, in JSON without escaped quotes and
backslashes. Takes linear time for malformed JSON as well."""


def _too_large(limit: int) -> BadRequest:
    """Return the error for an oversized body; only the log names the setting."""
    message = f"The request body is larger than {limit} bytes."
    logger.warning("Refused a request: %s (Raise max_body_bytes in the settings.)", message)
    return BadRequest(message, 413, "LIMIT_EXCEEDED")
