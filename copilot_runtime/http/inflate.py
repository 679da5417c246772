"""Decompress a response of a server that ignores `Accept-Encoding: identity`."""

import zlib
from collections.abc import Mapping

from copilot_runtime.http.connection import ClientPayloadError, Response

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
        """Return the next block, decompressed; b"" at the end."""
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
        """Return the connection to the pool if the response is complete, else close it."""
        self._response.release(finished=finished)

    def close(self) -> None:
        """Close the connection."""
        self._response.close()
