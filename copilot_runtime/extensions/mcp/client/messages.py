"""Repairs messages that the package `mcp` refuses to read.

Texts may contain half of a character: a server in JavaScript that shortens a text may cut an emoji
in two, and JSON.stringify writes the half as an escape. A file or a shell may have added a byte
order mark. A schema that contains itself may be unrolled to more levels than the package reads.

The package parses messages on the event loop, and formats each for its log. So large ones are read
here, in a thread, and the package gets a key in place of their results.
"""

import re
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import httpx2
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage, JSONRPCResponse, jsonrpc_message_adapter
from pydantic import ValidationError

from copilot_runtime.base.concurrency import call
from copilot_runtime.base.jsontext import dumps, replace_escaped_halves
from copilot_runtime.base.jsonvalue import JsonObject, get_text
from copilot_runtime.transports.body import has_more_values

LARGE = 64 * 1024
"""Size in bytes from which a message is read in a thread."""

TOO_DEEP = "[nested too deeply]"
"""The text in place of a value that is nested too deeply."""

_DEPTH = 200
"""The levels of JSON that pydantic reads."""

_MAX_VALUES = 250_000
_LARGE_KEY = "copilot_runtime/large"

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[{]|[\]}]', re.DOTALL)


class MalformedMessage(ValueError):
    """Data that is no JSON-RPC message, and why."""


class TooManyValues(ValueError):
    """A message with more JSON values than are read."""

    def __init__(self) -> None:
        super().__init__(f"It has more than {_MAX_VALUES:,} JSON values.")


class LargeResults:
    """Large results that were read already: in their place, the package reads a key."""

    def __init__(self) -> None:
        self._results: dict[str, JsonObject] = {}

    def restore(self, result: JsonObject) -> JsonObject:
        """Return the result with the key in another one, which is returned if it has none."""
        return self._results.pop(get_text(result, _LARGE_KEY), result)

    def read(self, data: bytes) -> bytes:
        """Return a message as the package can read it, with a key for a large result.

        Raises `MalformedMessage` or `TooManyValues`.
        """
        if has_more_values(data, _MAX_VALUES):
            raise TooManyValues
        data = _clean(data)
        try:
            message = _parse(data)
        except MalformedMessage:
            data = cut_deep_values(data)
            message = _parse(data)
        if len(data) < LARGE:
            return data
        if not isinstance(message, JSONRPCResponse):
            raise MalformedMessage(f"it has {len(data):,} bytes, and no result")
        return self._set_aside(message)

    def _set_aside(self, message: JSONRPCResponse) -> bytes:
        if len(self._results) >= 8:  # of requests that were cancelled
            del self._results[next(iter(self._results))]
        key = str(message.id)
        self._results[key] = message.result
        return dumps({"jsonrpc": "2.0", "id": message.id, "result": {_LARGE_KEY: key}})


class MessageStream(httpx2.AsyncByteStream):
    """The body of a response that is one message, repaired.

    For one that cannot be read, `on_excess` is called with a sentence, or `StreamError` is raised.
    """

    def __init__(self, body: Any, results: LargeResults, on_excess: Callable[[str], None]) -> None:
        self._body = body
        self._results = results
        self._on_excess = on_excess

    async def __aiter__(self) -> AsyncIterator[bytes]:
        data = b"".join([block async for block in self._body])
        try:
            yield await read_beside(self._results.read, data)
        except MalformedMessage as error:
            if len(data) >= LARGE:
                raise httpx2.StreamError(str(error)) from None
            yield data  # perhaps of another kind: the package knows
        except TooManyValues as error:
            self._on_excess(str(error))
            raise httpx2.StreamError(str(error)) from None

    async def aclose(self) -> None:
        await self._body.aclose()


async def read_beside(read: Callable[[bytes], bytes], data: bytes) -> bytes:
    """Call `read` with data: in a thread, if it is large."""
    return read(data) if len(data) < LARGE else await call(partial(read, data))


def _parse(data: bytes) -> JSONRPCMessage:
    try:
        return jsonrpc_message_adapter.validate_json(data, by_name=False)
    except ValidationError as error:
        is_json = error.errors(include_url=False)[0]["type"] != "json_invalid"
        kind = "JSON-RPC" if is_json else "JSON"
        text = data[:60].decode(errors="replace")
        raise MalformedMessage(f"it is no {kind} ({text!r})") from None


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
