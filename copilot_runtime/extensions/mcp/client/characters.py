"""Repairs messages that contain half of a character, which the package `mcp` refuses to read.

A server in JavaScript that shortens a text may cut an emoji in two, and JSON.stringify writes the
half as an escape.
"""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic import ValidationError

from copilot_runtime.base.jsontext import replace_escaped_halves


class WholeCharacterStream(httpx2.AsyncByteStream):
    """The body of a response, line by line, with U+FFFD for each escaped half of a character."""

    def __init__(self, body: Any) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        rest: list[bytes] = []
        async for block in self._body:
            lines, newline, tail = block.rpartition(b"\n")
            if newline:
                yield replace_escaped_halves(b"".join([*rest, lines, newline]))
                rest.clear()
            rest.append(tail)
        yield replace_escaped_halves(b"".join(rest))

    async def aclose(self) -> None:
        await self._body.aclose()


def repair_message(message: Any) -> Any:
    """Return the message that could not be read, without halves of characters, if that helps."""
    if not isinstance(message, ValidationError):
        return message
    [error, *_] = message.errors(include_url=False)
    if error["type"] != "json_invalid" or not isinstance(error["input"], str):
        return message
    data = replace_escaped_halves(error["input"].encode())
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(data, by_name=False))
    except ValidationError:
        return message
