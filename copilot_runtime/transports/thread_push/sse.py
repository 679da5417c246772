"""`GET threads/changes`: a thread list followed by its changes, as server-sent events."""

import asyncio
import random
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from copilot_runtime.base.jsontext import dumps
from copilot_runtime.runtime.thread_changes.change import Change, ThreadChange
from copilot_runtime.runtime.thread_changes.reader import ChangeReader
from copilot_runtime.threads.store import ThreadPage, ThreadQuery
from copilot_runtime.transports.agui import threads
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.streaming import run_until_disconnect
from copilot_runtime.transports.thread_push.encode import (
    encode_change,
    is_wanted,
)
from copilot_runtime.transports.thread_push.join_tokens import find_subject
from copilot_runtime.transports.thread_push.push import ThreadPush

_LIFETIME = 15 * 60.0
"""Maximum duration of a stream, in seconds; browsers then reconnect automatically and are
authenticated again."""

_RETRY = b"retry: 2000\n\n"


async def answer_changes(
    push: ThreadPush, query: ThreadQuery, request: Request, *, keep_alive: float
) -> None:
    """Stream changes until the client disconnects.

    Raises `QuotaExceeded`, `Misuse`, `StoreFailed`.
    """
    async with AsyncExitStack() as stack:
        stack.enter_context(push.streams.enter(find_subject(request.caller.identity)))
        stack.enter_context(push.hold(request.receive))
        conversations = push.conversations
        reader = await stack.enter_async_context(conversations.changes.follow(query.owner))
        page = await conversations.list(query)
        work = _write(reader, query, page, request, keep_alive)
        await run_until_disconnect(work, request.receive, None)


async def _write(
    reader: ChangeReader,
    query: ThreadQuery,
    page: ThreadPage,
    request: Request,
    keep_alive: float,
) -> None:
    seconds = _find_lifetime(request.caller.identity.expires_at)
    async with request.stream_events(keep_alive=keep_alive) as stream:
        await stream.write(_RETRY + _frame("threads", threads.page(page)))
        ends_at = asyncio.get_running_loop().time() + seconds
        while not reader.is_closed:
            try:
                async with asyncio.timeout_at(ends_at):
                    changes = await reader.read()
            except TimeoutError:
                break
            frames = [_encode(change) for change in changes if is_wanted(change, query)]
            if frames:
                await stream.write(b"".join(frames))
        await stream.write(b"", last=True)


def _encode(change: Change) -> bytes:
    kind = "thread" if isinstance(change, ThreadChange) else "run"
    return _frame(kind, encode_change(change))


def _frame(kind: str, fields: Mapping[str, Any]) -> bytes:
    return b"data: %b\n\n" % dumps({"type": kind, **fields})


def _find_lifetime(expires_at: float | None) -> float:
    """Return the duration of a stream, with jitter, so that streams do not all end at once."""
    seconds = _LIFETIME * random.uniform(0.9, 1.1)  # noqa: S311  # no secret
    return seconds if expires_at is None else max(0.0, min(seconds, expires_at - time.time()))
