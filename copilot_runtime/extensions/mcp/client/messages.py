"""Repairs messages that the package `mcp` refuses to read.

Texts may contain half of a character: a server in JavaScript that shortens a text may cut an emoji
in two, and JSON.stringify writes the half as an escape. A file or a shell may have added a byte
order mark. A schema that contains itself may be unrolled to more levels than the package reads.
"""

import re
from codecs import BOM_UTF8
from collections.abc import AsyncIterator
from typing import Any

import httpx2
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic import ValidationError
from pydantic_core import from_json

from copilot_runtime.base.jsontext import replace_escaped_halves

TOO_DEEP = "[nested too deeply]"
"""The text in place of a value that is nested too deeply."""

_DEPTH = 200
"""The levels of JSON that pydantic reads."""

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[{]|[\]}]', re.DOTALL)


class MessageStream(httpx2.AsyncByteStream):
    """The body of a response that is one message, repaired."""

    def __init__(self, body: Any) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        data = _clean(b"".join([block async for block in self._body]))
        try:
            from_json(data)
        except ValueError:
            data = cut_deep_values(data)
        yield data

    async def aclose(self) -> None:
        await self._body.aclose()


def repair_message(message: Any) -> Any:
    """Return the repaired form of a message that could not be read, if it can be read then."""
    if not isinstance(message, ValidationError):
        return message
    [error, *_] = message.errors(include_url=False)
    if error["type"] != "json_invalid" or not isinstance(error["input"], str):
        return message
    data = cut_deep_values(_clean(error["input"].encode()))
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(data, by_name=False))
    except ValidationError:
        return message


def _clean(data: bytes) -> bytes:
    return replace_escaped_halves(data.removeprefix(BOM_UTF8))


def cut_deep_values(data: bytes) -> bytes:
    """Return JSON, or lines of it, with `TOO_DEEP` for each value that is nested too deeply."""
    pieces: list[bytes] = []
    depth = begin = end = 0
    for token in _TOKEN.finditer(data):
        if token[0] in b"[{":
            depth += 1
            if depth == _DEPTH + 1:
                begin = token.start()
        elif token[0] in b"]}":
            if depth == _DEPTH + 1:
                pieces += [data[end:begin], b'"%b"' % TOO_DEEP.encode()]
                end = token.end()
            depth -= 1
    return b"".join([*pieces, data[end:]])
