"""The WebSocket of CopilotKit's thread list: the subset of Phoenix channels that the client uses.

A frontend gets the socket's URL from `/info`, a join code from the thread list, and a token from
`POST threads/subscribe`. It joins the topic `user_meta:<code>` and receives `thread_metadata`.
Contract: CopilotKit 1.57 to 1.75.

The server does not send `thread_run_activity`, on which the chat of 1.74 reloads its thread: it
mistakes the runs after a tool call for those of another client, and without the cursor that only
CopilotKit's cloud has, it would show their text twice.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, ExitStack, aclosing, suppress
from datetime import UTC, datetime
from urllib.parse import parse_qs

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.runtime.thread_changes.change import Change, ThreadChange
from copilot_runtime.security.quota import QuotaExceeded
from copilot_runtime.threads.store import ThreadQuery
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.streaming import WriteTimeout, abort_connection
from copilot_runtime.transports.thread_push.encode import (
    HEARTBEAT_TOPIC,
    PhoenixMessage,
    decode_message,
    encode_change,
    encode_message,
    reply,
)
from copilot_runtime.transports.thread_push.join_tokens import JoinPass
from copilot_runtime.transports.thread_push.push import SOCKET, ThreadPush
from copilot_runtime.transports.transport import Refusal, Services, Transport, error_body

_TOPIC = "user_meta:"
_LONGEST = 8192
"""Maximum length of a client's message, in characters."""

_SILENCE = 90.0
"""Seconds without a message after which a client counts as gone: it sends a heartbeat every 30
seconds."""

_MOST_MESSAGES = 60
"""Maximum number of a client's messages in `_SILENCE` seconds."""

_SOCKETS_PER_STREAM = 10
"""How many more sockets than followed lists one user may have: a client whose join is refused keeps
its socket, and tries again there, but it would open a refused socket again and again."""

_OVERLAP = 60.0
"""Seconds before the token's issue from which changes are resent: the frontend may have read its
list then."""

_GOING_AWAY, _POLICY, _TOO_BIG, _RESTART = 1001, 1008, 1009, 1012

logger = logging.getLogger(__name__)


class ThreadSocketEndpoint(Transport):
    """Serves the WebSockets of frontends that show thread lists."""

    paths = (f"{SOCKET}/websocket",)
    socket_paths = paths
    has_own_auth = True  # browsers send no headers: the token in the URL authenticates the page

    def __init__(self, services: Services) -> None:
        self._push = services.parts.get(ThreadPush)
        self._sockets = self._push.streams.widen(_SOCKETS_PER_STREAM)
        self._write_timeout = services.settings.write_timeout

    async def accepts(self, request: Request) -> bool:
        return request.is_websocket

    async def __call__(self, request: Request) -> None:
        await request.receive()  # the client's connection request
        query = parse_qs(request.query_string)
        request.scope["query_string"] = b""  # servers log the query, which contains the token
        with ExitStack() as stack:
            try:
                join = await self._push.tokens.read_token(query.get("join_token", [""])[-1])
                stack.enter_context(self._sockets.enter(join.subject))
            except CopilotError as error:
                body = error_body(error.code.lower(), error.public, error.code)
                raise Refusal(error.status_code, body, close=(_POLICY, "Refused")) from error
            await request.send({"type": "websocket.accept"})
            socket = _Socket(self._push, join, request, self._write_timeout)
            await socket.run()


class _Socket:
    """A connection, with at most one joined topic."""

    def __init__(
        self, push: ThreadPush, join: JoinPass, request: Request, write_timeout: float
    ) -> None:
        self._push = push
        self._join = join
        self._request = request
        self._write_timeout = write_timeout
        self._telling: asyncio.Task[None] | None = None
        self._joined: PhoenixMessage | None = None
        self._is_refused = False

    async def run(self) -> None:
        """Serve until the client disconnects, is silent too long, or its token expires."""
        code = _GOING_AWAY
        try:
            async with asyncio.timeout(max(0.0, self._join.expires_at - time.time())):
                code = await self._answer_all()
        except TimeoutError:
            code = _POLICY
        except (WriteTimeout, CopilotError):
            pass
        finally:
            self._leave()
            with suppress(Exception):  # the client has already disconnected
                await self._request.send({"type": "websocket.close", "code": code, "reason": ""})

    async def _answer_all(self) -> int:
        """Reply to each message. Returns the reason for which the connection ends."""
        since, count = time.monotonic(), 0
        while True:
            try:
                async with asyncio.timeout(_SILENCE):
                    received = await self._request.receive()
            except TimeoutError:
                return _GOING_AWAY
            if received["type"] == "websocket.disconnect":
                return _GOING_AWAY
            if time.monotonic() - since > _SILENCE:
                since, count = time.monotonic(), 0
            count += 1
            text = received.get("text") or ""
            if len(text) > _LONGEST:
                return _TOO_BIG
            try:
                message = decode_message(text)
            except ValueError:
                return _POLICY
            if count > _MOST_MESSAGES:
                return _POLICY
            await self._answer(message)

    async def _answer(self, message: PhoenixMessage) -> None:
        match message.topic, message.event:
            case topic, "heartbeat" if topic == HEARTBEAT_TOPIC:
                await self._send(reply(message, "ok"))
            case topic, "phx_join":
                code = topic.removeprefix(_TOPIC)
                is_own = topic.startswith(_TOPIC) and await self._push.tokens.is_code(
                    code, self._join.owner
                )
                if not is_own:
                    await self._send(reply(message, "error", {"reason": "unauthorized"}))
                    return
                self._leave()
                self._joined = message
                self._telling = asyncio.create_task(self._tell(message), name="tell of threads")
            case _, "phx_leave":
                self._leave()
                await self._send(reply(message, "ok"))
            case _:
                await self._send(reply(message, "error", {"reason": "unmatched topic"}))

    def _leave(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
        self._telling = self._joined = None

    async def _tell(self, join: PhoenixMessage) -> None:
        """Accept a join, and push changes until the client leaves or the server stops."""
        try:
            async with aclosing(self._follow(join)) as batches:
                async for changes in batches:
                    for change in changes:
                        if isinstance(change, ThreadChange):
                            await self._tell_one(join, change)
            code = _RESTART
        except WriteTimeout:
            abort_connection(self._request.receive)
            return
        except CopilotError as error:
            if not self._is_refused:  # the client tries again every 30 seconds
                logger.warning(
                    "A list of threads cannot be followed: %s %s", error, error.hint or ""
                )
            self._is_refused = True
            reason = error.message if isinstance(error, QuotaExceeded) else "unavailable"
            await self._send(reply(join, "error", {"reason": reason}))
            return
        with suppress(Exception):
            await self._request.send({"type": "websocket.close", "code": code, "reason": ""})

    async def _follow(self, join: PhoenixMessage) -> AsyncGenerator[Sequence[Change], None]:
        """Yield the changes since the client read its list, and then live changes."""
        conversations = self._push.conversations
        async with AsyncExitStack() as stack:
            stack.enter_context(self._push.streams.enter(self._join.subject))
            followed = conversations.changes.follow(self._join.owner)
            reader = await stack.enter_async_context(followed)
            page = await conversations.list(ThreadQuery(owner=self._join.owner, archived=True))
            await self._send(reply(join, "ok"))
            since = datetime.fromtimestamp(self._join.issued_at - _OVERLAP, UTC)
            yield [
                ThreadChange(key=thread.key, operation="updated", thread=thread)
                for thread in page.threads
                if thread.updated_at > since
            ]
            while changes := await reader.read():
                yield changes

    async def _tell_one(self, join: PhoenixMessage, change: ThreadChange) -> None:
        await self._send(
            PhoenixMessage(
                join_ref=join.join_ref,
                ref=None,
                topic=join.topic,
                event="thread_metadata",
                payload=encode_change(change),
            )
        )

    async def _send(self, message: PhoenixMessage) -> None:
        """Send a message. Raises `WriteTimeout` for a stalled client."""
        try:
            async with asyncio.timeout(self._write_timeout):
                await self._request.send(
                    {"type": "websocket.send", "text": encode_message(message)}
                )
        except TimeoutError:
            raise WriteTimeout from None
