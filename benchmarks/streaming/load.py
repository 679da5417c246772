"""Many chats at once against one server: every chunk is checked, latency and CPU are measured."""

import asyncio
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import uvloop

from benchmarks.streaming.chats import ABORTED, ChatConnection, Times
from benchmarks.streaming.clients import Client, RequestWriter
from benchmarks.streaming.mock_upstream import now_us
from benchmarks.streaming.processes import cpu_s, family, rss_mb
from benchmarks.streaming.scripts import Script

Figures = dict[str, float | None]
"""Measured numbers by name; the name ends with the unit. None: there was nothing to measure."""

SETTLE_S = 0.05
"""How long a load waits after its last chat, so that the server's last work is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The chats to send. More `requests` than `streams` reuse their connections."""

    streams: int
    chunks: int
    delay_ms: float = 0
    first_after_ms: float = 0
    requests: int = 0
    history: int = 0
    tool: str = ""
    abort_after: int = 0
    ramp_s: float = 0
    timeout_s: float = 120
    sample_rss_s: float = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where the chats go, and the processes whose CPU is counted (0: none)."""

    client: Client
    url: str
    pid: int = 0
    mock_pid: int = 0


@dataclass(slots=True)
class Tally:
    """What happened. Times are microseconds, unsorted."""

    latencies: list[int] = field(default_factory=list[int])
    problems: list[str] = field(default_factory=list[str])
    chat_times: list[int] = field(default_factory=list[int])
    firsts: dict[str, Times] = field(default_factory=dict[str, Times])
    aborts: dict[str, int] = field(default_factory=dict[str, int])
    wire_bytes: int = 0
    worst_lag_s: float = 0
    rss_samples_mb: list[float] = field(default_factory=list[float])


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of a load, and the moments behind them for those who ask the mock as well."""

    figures: Figures
    tally: Tally

    @property
    def problems(self) -> list[str]:
        return self.tally.problems

    @property
    def completed(self) -> int:
        return len(self.tally.chat_times)


def run(load: Load, destination: Destination) -> Outcome:
    """Send the chats of a load and wait for all of them."""
    return uvloop.run(send(load, destination))


async def send(load: Load, destination: Destination) -> Outcome:
    """Send the chats of a load from the running event loop."""
    tally = Tally()
    clients = _Clients(load, destination, tally)
    pids = family(destination.pid) if destination.pid else []
    watchers = [asyncio.create_task(_watch_lag(tally))]
    if load.sample_rss_s and pids:
        watchers.append(asyncio.create_task(_sample_rss(pids, load.sample_rss_s, tally)))
    figures: Figures = {"rss_before_mb": round(rss_mb(pids), 1)}
    own, server, mock = os.times(), cpu_s(pids), cpu_s([destination.mock_pid])
    began = time.monotonic()
    await asyncio.gather(*[clients.work(number) for number in range(load.streams)])
    wall_s = time.monotonic() - began
    await asyncio.sleep(SETTLE_S)
    pids = family(destination.pid) if destination.pid else []
    server_s, mock_s = cpu_s(pids) - server, cpu_s([destination.mock_pid]) - mock
    now = os.times()
    for watcher in watchers:
        watcher.cancel()
    figures |= _count(tally, wall_s) | _latency(tally)
    figures |= _cpu(tally, load.requests or load.streams, server_s, mock_s)
    figures["load_us_per_chunk"] = _per_million(
        now.user + now.system - own.user - own.system, len(tally.latencies)
    )
    figures["rss_peak_mb"] = round(max(tally.rss_samples_mb), 1) if tally.rss_samples_mb else None
    figures["rss_after_mb"] = round(rss_mb(pids), 1)
    return Outcome(figures, tally)


class _Clients:
    """Workers, one per concurrent stream, that share the list of chats to send."""

    def __init__(self, load: Load, destination: Destination, tally: Tally) -> None:
        self._load = load
        self._client = destination.client
        address = urlsplit(destination.url)
        self._host, self._port = address.hostname or "", address.port or 80
        self._requests = RequestWriter(
            destination.client, destination.url, history=load.history, tool=load.tool
        )
        self._tally = tally
        self._prefix = f"{os.getpid()}_{now_us()}"
        self._numbers: Iterator[int] = iter(range(load.requests or load.streams))

    async def work(self, number: int) -> None:
        """Send chats one after the other until all are taken."""
        if self._load.ramp_s:
            await asyncio.sleep(self._load.ramp_s * number / self._load.streams)
        connection = None
        for chat in self._numbers:
            try:
                if connection is None or not connection.usable():
                    connection = await self._connect()
                await self._chat(connection, f"{self._prefix}_{chat}")
            except OSError as error:
                self._tally.problems.append(f"connect: {error}")
                connection = None
        if connection is not None:
            connection.close()

    async def _connect(self) -> ChatConnection:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: ChatConnection(self._client, self._tally.latencies),
            self._host,
            self._port,
        )
        return connection

    async def _chat(self, connection: ChatConnection, stream_id: str) -> None:
        load = self._load
        script = Script(
            stream_id=stream_id,
            chunks=load.chunks,
            delay_ms=load.delay_ms,
            first_after_ms=load.first_after_ms,
            tool=load.tool,
        )
        request = self._requests.write(script.marker())
        outcome = connection.send(request, load.chunks, load.abort_after)
        try:
            problem = await asyncio.wait_for(asyncio.shield(outcome), load.timeout_s)
        except TimeoutError:
            problem = f"timeout after {connection.received} chunks"
        self._record(connection, stream_id, problem)

    def _record(self, connection: ChatConnection, stream_id: str, problem: str) -> None:
        tally, times = self._tally, connection.times
        tally.wire_bytes += connection.wire_bytes
        if problem == ABORTED:
            tally.aborts[stream_id] = times.end
        elif problem:
            tally.problems.append(problem)
            connection.abort()
        else:
            tally.chat_times.append(times.end - times.sent)
            if times.first_chunk:
                tally.firsts[stream_id] = times


async def _watch_lag(tally: Tally) -> None:
    """Note how late the load client itself runs: its figures are only as good as this."""
    loop = asyncio.get_running_loop()
    while True:
        asleep = loop.time()
        await asyncio.sleep(0.02)
        tally.worst_lag_s = max(tally.worst_lag_s, loop.time() - asleep - 0.02)


async def _sample_rss(pids: list[int], every_s: float, tally: Tally) -> None:
    while True:
        tally.rss_samples_mb.append(rss_mb(pids))
        await asyncio.sleep(every_s)


def _count(tally: Tally, wall_s: float) -> Figures:
    chunks = len(tally.latencies)
    return {
        "completed": len(tally.chat_times),
        "aborted": len(tally.aborts),
        "failed": len(tally.problems),
        "chunks": chunks,
        "wall_s": round(wall_s, 3),
        "chunks_per_s": round(chunks / wall_s),
        "chats_per_s": round(len(tally.chat_times) / wall_s, 1),
        "wire_bytes_per_chunk": round(tally.wire_bytes / chunks) if chunks else None,
        "load_lag_ms": round(tally.worst_lag_s * 1000, 1),
    }


def _latency(tally: Tally) -> Figures:
    firsts = [times.first_chunk - times.sent for times in tally.firsts.values()]
    return {
        "ttft_p50_ms": percentile_ms(firsts, 0.5),
        "ttft_p99_ms": percentile_ms(firsts, 0.99),
        "chunk_p50_ms": percentile_ms(tally.latencies, 0.5),
        "chunk_p99_ms": percentile_ms(tally.latencies, 0.99),
        "chunk_max_ms": percentile_ms(tally.latencies, 1),
        "chat_p50_ms": percentile_ms(tally.chat_times, 0.5),
        "chat_p99_ms": percentile_ms(tally.chat_times, 0.99),
    }


def _cpu(tally: Tally, chats: int, server_s: float, mock_s: float) -> Figures:
    chunks = len(tally.latencies)
    return {
        "cpu_s": round(server_s, 3),
        "cpu_us_per_chunk": _per_million(server_s, chunks),
        "cpu_ms_per_chat": round(server_s / chats * 1e3, 3),
        "mock_us_per_chunk": _per_million(mock_s, chunks),
    }


def percentile_ms(values_us: list[int], share: float) -> float | None:
    """Return the value that `share` of all values stay below, in milliseconds."""
    ordered = sorted(values_us)
    if not ordered:
        return None
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1000, 3)


def _per_million(amount: float, count: int) -> float | None:
    return round(amount / count * 1e6, 2) if count else None
