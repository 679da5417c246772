"""Passes requests to the package `a2a-sdk`, which decodes and encodes all protocol versions.

Our own code reads bodies and writes responses, with the limits of all transports.
"""

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from json import JSONDecodeError
from typing import Any, cast

from a2a.compat.v0_3.extension_headers import LEGACY_HTTP_EXTENSION_HEADER
from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
from a2a.server.context import ServerCallContext
from a2a.server.routes import create_rest_routes
from a2a.server.routes.common import ServerCallContextBuilder
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.utils.error_handlers import rest_error_handler
from a2a.utils.errors import A2AError
from google.protobuf.json_format import ParseError
from sse_starlette import EventSourceResponse
from sse_starlette.event import ensure_bytes
from starlette.requests import Request as StarletteRequest
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Message, Receive

from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.extensions.a2a.server.card import A2UI
from copilot_runtime.extensions.a2a.server.handler import CALL, Call, RunHandler
from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.transports.body import BadRequest, has_more_values
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.transport import Refusal

_MOST_VALUES = 50_000
"""Maximum number of JSON values in a body, and of characters in a text outside of the parts of a
message: the package reads a text that stands for a list or an object character by character, and
writes it into its errors."""

_TEXTS = {
    *(("parts", key) for key in ("text", "raw", "url")),
    *(("content", key) for key in ("text",)),
    *(("file", key) for key in ("bytes", "uri", "fileWithBytes", "fileWithUri")),
    *(("file", key) for key in ("file_with_bytes", "file_with_uri")),
}
"""The fields of parts that may have a long text, with the field that has the part."""

_KEEP_ALIVE = b": keep-alive\n\n"


class _JsonRequest(StarletteRequest):
    """A request whose body is valid JSON for all parsers of the package, or for none.

    Invalid UTF-8, lone surrogates or deep nesting would fail somewhere in the package and be logged
    as server errors. Lone surrogates become U+FFFD.
    """

    async def json(self) -> Any:
        """Return the decoded body, for JSON-RPC. Raises `JSONDecodeError`."""
        try:
            return loads(await super().body())
        except ValueError as error:
            raise JSONDecodeError(str(error), "", 0) from error

    async def body(self) -> bytes:
        """Return the body, for HTTP+JSON. Raises `ParseError`."""
        body = await super().body()
        if not body:
            return body
        try:
            value = loads(body)
        except ValueError as error:
            raise ParseError(str(error)) from error
        return dumps(value) if b"\\u" in body else body


class _CallerMistakes(logging.Filter):
    """A log filter for tracebacks of invalid requests: the package logs their message anyway."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False for the traceback of an invalid request."""
        if record.exc_info is not None and isinstance(record.exc_info[1], ParseError):
            return False
        return not str(record.msg).startswith(
            ("Failed to validate base", "Failed to parse request")
        )


_CALLER_MISTAKES = _CallerMistakes()


class _ContextBuilder(ServerCallContextBuilder):
    """Passes on the caller, who is already authenticated."""

    def build(self, request: StarletteRequest) -> ServerCallContext:
        return ServerCallContext(
            state={CALL: request.scope[CALL], "headers": dict(request.headers)}
        )


class Dispatcher:
    """Handles requests at an agent's path and below it."""

    def __init__(
        self, conversations: Conversations, *, max_items: int, keep_alive: float, has_a2ui: bool
    ) -> None:
        for name in (
            "server.routes.jsonrpc_dispatcher",
            "compat.v0_3.jsonrpc_adapter",
            "utils.error_handlers",
        ):
            logging.getLogger(f"a2a.{name}").addFilter(_CALLER_MISTAKES)
        handler = RunHandler(conversations, max_items=max_items)
        builder = _ContextBuilder()
        self._has_a2ui = has_a2ui
        self._keep_alive = keep_alive
        self._rpc = JsonRpcDispatcher(handler, builder, enable_v0_3_compat=True)
        routes = create_rest_routes(handler, builder, enable_v0_3_compat=True)
        self._routes: Sequence[Route] = [it for it in routes if isinstance(it, Route)]

    async def answer(self, request: Request, agent: str, target: str | None, path: str) -> None:
        """Handle a request; `path` is the part of the URL's path after the agent's."""
        scope = {
            **request.scope,
            "path": path or "/",
            "raw_path": (path or "/").encode("latin-1"),
            "root_path": "",
            CALL: Call(
                caller=request.caller,
                agent=agent,
                target=target,
                has_a2ui=self._has_a2ui and A2UI in _read_extensions(request.headers),
            ),
        }
        endpoint: Any = self._rpc.handle_requests
        if path:
            endpoint, params = self._match(scope)
            scope["path_params"] = params
        elif request.method != "POST":
            raise Refusal(405, {"error": "JSON-RPC is sent by POST."}, {"allow": "POST"})
        body = await request.body()
        request.check_json(body)
        if has_more_values(body, _MOST_VALUES):
            raise BadRequest(
                f"A request of A2A may have {_MOST_VALUES} values.", 413, "LIMIT_EXCEEDED"
            )
        if len(body) > _MOST_VALUES and _has_long_text(_decode(body)):
            raise BadRequest(
                f"Only the parts of a message may have texts of more than {_MOST_VALUES} "
                "characters.",
                413,
                "LIMIT_EXCEEDED",
            )
        response: Response = await endpoint(_JsonRequest(scope, _repeat(body)))
        await self._respond(request, response)

    def _match(self, scope: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
        """Return the handler of an HTTP+JSON path, and its parameters. Raises `Refusal`."""
        exists = False
        for route in self._routes:
            match, found = route.matches(cast("Any", scope))
            if match == Match.FULL:
                return route.endpoint, found["path_params"]
            exists |= match == Match.PARTIAL
        if exists:
            raise Refusal(405, {"error": "This is asked by another method."})
        raise Refusal(404, {"error": "Not found"})

    async def _respond(self, request: Request, response: Response) -> None:
        if not isinstance(response, EventSourceResponse):
            await request.respond(
                response.status_code,
                bytes(response.body),
                content_type=response.headers.get("content-type", "application/json"),
            )
            return
        events = cast("AsyncGenerator[Any]", response.body_iterator)
        async with aclosing(events):
            try:
                first = await anext(events, None)
            except (
                A2AError,
                ParseError,
            ) as error:  # the package starts streams of 0.3 before it detects the error
                await self._respond(request, await _build_error(error))
                return
            async with request.stream(
                "text/event-stream", keep_alive=self._keep_alive, comment=_KEEP_ALIVE
            ) as stream:
                if first is not None:
                    await stream.write(ensure_bytes(first, "\n"))
                async for event in events:
                    await stream.write(ensure_bytes(event, "\n"))
                await stream.write(b"", last=True)


@rest_error_handler
async def _build_error(error: A2AError | ParseError) -> Response:
    """Return the HTTP+JSON response to an error."""
    raise error


def _decode(body: bytes) -> Any:
    """Return the JSON value of a body, or `None` if it is malformed: the package tells why."""
    try:
        return loads(body)
    except ValueError:
        return None


def _has_long_text(value: Any, key: str = "", parent: str = "") -> bool:
    """Return `True` if a text outside of the parts and the data of a message is too long."""
    match value:
        case str():
            return len(value) > _MOST_VALUES and (parent, key) not in _TEXTS
        case list():
            return any(_has_long_text(item, key, parent) for item in cast("list[Any]", value))
        case dict() if key not in ("data", "metadata"):
            members = cast("dict[str, Any]", value).items()
            return any(
                len(name) > _MOST_VALUES or _has_long_text(item, name, key)
                for name, item in members
            )
        case _:
            return False


def _read_extensions(headers: Mapping[str, str]) -> set[str]:
    names = (HTTP_EXTENSION_HEADER.lower(), LEGACY_HTTP_EXTENSION_HEADER.lower())
    return get_requested_extensions([headers.get(name, "") for name in names])


def _repeat(body: bytes) -> Receive:
    """Return a `receive` callable that replays the body, which was already read and measured."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return waiting.pop() if waiting else {"type": "http.disconnect"}

    return receive
