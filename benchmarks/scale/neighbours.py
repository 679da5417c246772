"""What somebody notices of another user who sends requests without end."""

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from time import monotonic_ns
from typing import Literal, cast

from benchmarks.scale.readers import Window, read, write_run
from benchmarks.scale.servers import Servers
from benchmarks.streaming.load import Figures, percentile_ms

Loudness = Literal["nobody", "refused", "allowed"]
"""What else happens: nothing, requests of somebody over a limit, or of somebody below it."""

REQUESTS = 100_000
"""Requests of the loud user, unless the time is over before."""

_LOUD = "loud"
_CONNECTIONS = 16
_QUIET_USERS = 4
_CHUNKS, _PAUSE_MS = 5, 20


class Loud(asyncio.Protocol):
    """A connection that asks again as soon as it has its answer."""

    def __init__(self, loudness: Loudness, counter: "Counter") -> None:
        self._loudness = loudness
        self._counter = counter
        self._transport: asyncio.Transport | None = None
        self._template = write_run("0" * 36, 1, 0, user=_LOUD)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._ask()

    def data_received(self, data: bytes) -> None:
        if data.endswith((b"0\r\n\r\n", b"}")):
            self._counter.note(is_refused=b"LIMIT_EXCEEDED" in data or b" 429 " in data)
            self._ask()

    def _ask(self) -> None:
        if self._transport is not None and self._counter.answers < REQUESTS:
            request = self._template
            if self._loudness == "allowed":
                request = request.replace(b"0" * 36, str(uuid.uuid4()).encode())
            self._transport.write(request)

    def close(self) -> None:
        """Leave."""
        if self._transport is not None:
            self._transport.abort()


class Counter:
    """What the loud user got."""

    def __init__(self) -> None:
        self.answers = 0
        self.refusals = 0
        self.refused = asyncio.Event()

    def note(self, *, is_refused: bool) -> None:
        """Count an answer."""
        self.answers += 1
        if is_refused:
            self.refusals += 1
            self.refused.set()


async def measure_neighbour(servers: Servers, loudness: Loudness, seconds: float) -> Figures:
    """Let quiet users chat for some time, and return what they waited."""
    firsts: list[int] = []
    chats: list[int] = []
    window = Window()
    window.is_open = True
    counter, before = Counter(), servers.cost()
    began = asyncio.get_running_loop().time()
    async with _being_loud(servers.ports[0], loudness, counter):
        until = began + seconds
        users = [f"quiet-{number}" for number in range(_QUIET_USERS)]  # each below its limits
        work = [_chat(servers.ports[0], until, window, firsts, chats, user) for user in users]
        await asyncio.gather(*work)
    passed = asyncio.get_running_loop().time() - began
    return {
        "first_p50_ms": percentile_ms(firsts, 0.5),
        "first_p99_ms": percentile_ms(firsts, 0.99),
        "chunk_p99_ms": percentile_ms(window.latencies, 0.99),
        "chat_p50_ms": percentile_ms(chats, 0.5),
        "chat_p99_ms": percentile_ms(chats, 0.99),
        "chats": len(chats),
        "loud_requests": counter.answers,
        "loud_per_s": round(counter.answers / passed),
        "refused_share": round(counter.refusals / counter.answers, 3) if counter.answers else None,
        "cores": round((servers.cost() - before).total / passed, 2),
    }


async def spend_limit(servers: Servers) -> None:
    """Ask until the loud user is refused."""
    counter = Counter()
    async with _being_loud(servers.ports[0], "refused", counter):
        await counter.refused.wait()


@asynccontextmanager
async def _being_loud(port: int, loudness: Loudness, counter: Counter) -> AsyncGenerator[None]:
    loop = asyncio.get_running_loop()
    connections: list[Loud] = []
    if loudness != "nobody":
        for _ in range(_CONNECTIONS):
            _, loud = await loop.create_connection(
                lambda: Loud(loudness, counter), "127.0.0.1", port
            )
            connections.append(loud)
        await asyncio.sleep(0.5)
    try:
        yield
    finally:
        for loud in connections:
            loud.close()


async def _chat(
    port: int, until: float, window: Window, firsts: list[int], chats: list[int], user: str
) -> None:
    loop = asyncio.get_running_loop()
    while loop.time() < until:
        request = write_run(str(uuid.uuid4()), _CHUNKS, _PAUSE_MS, user=user)
        asked = monotonic_ns()
        reader = await read(port, request, window)
        firsts.append((monotonic_ns() - asked) // 1000)
        await reader.ended
        assert reader.chunks == _CHUNKS, f"{reader.chunks} chunks: {reader.tail!r}"
        chats.append((monotonic_ns() - asked) // 1000)
        reader.close()
