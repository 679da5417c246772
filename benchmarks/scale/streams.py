"""Paced streams through servers: their CPU in a window in which all of them are open."""

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from benchmarks.scale.readers import Reader, Window, read, write_connect, write_run
from benchmarks.scale.servers import Cost, Servers
from benchmarks.streaming.load import Figures, percentile_ms

Where = Literal["here", "elsewhere", "nowhere", "asker"]
"""Who reads: one who connects to the process that answers, or to another; nobody; or the one who
asked."""

_PAUSE_MS = 50
_RAMP_S = 3.0
_SETTLE_S = 1.0


@dataclass(frozen=True, slots=True)
class Paced:
    """So many streams of 20 chunks a second, of 52 bytes each, measured for some seconds."""

    streams: int
    window_s: float = 6.0

    @property
    def rate(self) -> float:
        """Chunks a second."""
        return self.streams * 1000 / _PAUSE_MS

    @property
    def chunks(self) -> int:
        """How long a run is: from its start to the end of the window, with room for a slow one."""
        return round((2 * _RAMP_S + 2 * _SETTLE_S + self.window_s + 3) * 1000 / _PAUSE_MS)


@dataclass(frozen=True, slots=True)
class Measured:
    """What the servers took for all chunks of a window, and when these arrived."""

    cost: Cost
    chunks: int
    latencies: Sequence[int]
    failed: int
    """Streams that had ended before the window was closed."""
    rss_mb: float

    def figures(self) -> Figures:
        """Return the figures of a row. Microseconds are CPU for each chunk."""
        servers = [1e6 * seconds / self.chunks for seconds in self.cost.servers]
        return {
            "us_per_chunk": round(1e6 * self.cost.total / self.chunks, 2),
            "servers_us": round(sum(servers), 2),
            **{
                f"{name}_us": round(1e6 * seconds / self.chunks, 2)
                for name, seconds in self.cost.shared.items()
            },
            "busiest_us": round(max(servers), 2),
            "median_us": round(median(servers), 2),
            "chunks": self.chunks,
            "p50_ms": percentile_ms([*self.latencies], 0.5),
            "p99_ms": percentile_ms([*self.latencies], 0.99),
            "max_ms": percentile_ms([*self.latencies], 1),
            "rss_mb": round(self.rss_mb, 1),
            "failed": self.failed,
        }


async def measure_streams(servers: Servers, load: Paced, where: Where = "asker") -> Measured:
    """Start the runs, let them be read, and measure while all of them go on.

    Runs are started at the servers in turn, or all at the first one where somebody connects.
    """
    window, began = Window(), asyncio.get_running_loop().time()
    readers = await _open_readers(servers, load, where, window)
    await asyncio.sleep(_SETTLE_S)
    before, window.is_open = servers.cost(), True
    counted, opened = _count(readers), asyncio.get_running_loop().time()
    await asyncio.sleep(load.window_s)
    cost, window.is_open = servers.cost() - before, False
    passed = asyncio.get_running_loop().time() - opened
    chunks = _count(readers) - counted if readers else round(load.rate * passed)
    failed = sum(1 for reader in readers if reader.ended.done())
    memory = servers.rss_mb()
    await _leave(load, began, readers)
    return Measured(cost, chunks, window.latencies, failed, memory)


async def _open_readers(
    servers: Servers, load: Paced, where: Where, window: Window
) -> list[Reader]:
    """Start the runs, and return those who read them."""
    threads = [str(uuid.uuid4()) for _ in range(load.streams)]
    runs = [write_run(thread, load.chunks, _PAUSE_MS) for thread in threads]
    if where == "asker":
        return await _ramp(runs, servers.ports, window)
    for asker in await _ramp(runs, servers.ports[:1], window):
        asker.close()
    await asyncio.sleep(_SETTLE_S)
    if where == "nowhere":
        return []
    port = servers.ports[0 if where == "here" else 1]
    return await _ramp([write_connect(thread) for thread in threads], [port], window)


async def _ramp(requests: Sequence[bytes], ports: Sequence[int], window: Window) -> list[Reader]:
    """Send requests one after the other, so that their chunks do not all come at one time."""
    pause, loop = _RAMP_S / len(requests), asyncio.get_running_loop()
    began, tasks = loop.time(), list[asyncio.Task[Reader]]()
    for number, request in enumerate(requests):
        await asyncio.sleep(began + number * pause - loop.time())
        port = ports[number % len(ports)]
        tasks.append(asyncio.create_task(read(port, request, window)))
    return await asyncio.gather(*tasks)


def _count(readers: Sequence[Reader]) -> int:
    return sum(reader.chunks for reader in readers)


async def _leave(load: Paced, began: float, readers: Sequence[Reader]) -> None:
    """Wait for the ends of the runs: the next load shall have the servers for itself."""
    left = began + _RAMP_S + load.chunks * _PAUSE_MS / 1000 - asyncio.get_running_loop().time()
    await asyncio.sleep(max(0.0, left))
    if readers:
        await asyncio.wait([reader.ended for reader in readers], timeout=10)
    for reader in readers:
        reader.close()
    await asyncio.sleep(_SETTLE_S)
