"""Read the body of a request, in any protocol."""

import logging
from collections.abc import Mapping

from starlette.types import Receive

logger = logging.getLogger(__name__)


class BadRequest(Exception):
    """The request cannot be read. `status` is the HTTP status for clients that look at it."""

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
        """Headers of the answer."""
        return {"allow": self.allow} if self.allow else {}


class ClientGone(Exception):
    """The client left before the end of its request."""


_MOST_PASSED_OVER = 64 * 1024 * 1024


async def read_body(receive: Receive, headers: Mapping[str, str], limit: int) -> bytes:
    """Collect the body. Raises `BadRequest` (413) when it is larger than `limit` bytes.

    The rest of one that is too large is passed over: a client that is still sending when the
    connection closes never sees the answer.
    """
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit + _MOST_PASSED_OVER:
        raise _too_large(limit)
    pieces: list[bytes] = []
    size = 0
    while size <= limit + _MOST_PASSED_OVER:
        message = await receive()
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


def _too_large(limit: int) -> BadRequest:
    """Return the error for a body that is too large; only the log names the setting."""
    message = f"The request body is larger than {limit} bytes."
    logger.warning("Refused a request: %s (Raise max_body_bytes in the settings.)", message)
    return BadRequest(message, 413, "LIMIT_EXCEEDED")
