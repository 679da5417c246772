"""What is measured, most cases in less than two and a half minutes on two cores."""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from functools import partial

from benchmarks.scale.neighbours import Loudness, measure_neighbour, spend_limit
from benchmarks.scale.quota import limiting_cpu
from benchmarks.scale.servers import Servers, serving_processes, serving_workers
from benchmarks.scale.stops import measure_stops
from benchmarks.scale.streams import Paced, Where, measure_streams
from benchmarks.streaming.load import Figures

Rows = AsyncGenerator[tuple[str, Figures]]
"""What was measured, and its figures."""

_LIMIT = "2000/hour"
_AT_ONCE = "4"
_LATE_MS = 100.0
"""The p99 of chunks that come late."""
_FIRST_OF_A_CORE = 200
"""Streams that every core can have."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    streams: int = 500
    """Of the carriers."""
    each: int = 200
    """Streams of each process, of the workers."""
    window_s: float = 6.0
    stops: int = 200
    neighbour_s: float = 20.0
    repeats: int = 2
    most: int = 4
    """Processes."""
    share: float = 0.25
    """Of a core, for each worker of those that are loaded until they are late."""


async def measure_workers(size: Size) -> Rows:
    """`serve --workers` on one file of SQLite: as many streams for each worker, more of them."""
    for count in _list_counts(size):
        with serving_workers(count) as servers:
            async for row in _load_processes(servers, count, size):
                yield row


async def measure_processes(size: Size) -> Rows:
    """Processes on one PostgreSQL and one Redis: as many streams for each, more of them."""
    for count in _list_counts(size):
        with serving_processes(count, "redis") as servers:
            async for row in _load_processes(servers, count, size):
                yield row


def _list_counts(size: Size) -> list[int]:
    return [count for count in (1, 2, 4) if count <= size.most]


async def _load_processes(servers: Servers, count: int, size: Size) -> Rows:
    for _ in range(size.repeats):
        load = Paced(count * size.each, size.window_s)
        measured = await measure_streams(servers, load)
        busiest = max(measured.cost.servers)
        # with so many streams, the busiest process would have no time left
        capacity = measured.chunks / busiest / load.rate * load.streams
        figures: Figures = {
            "streams": load.streams,
            "busiest_core": round(busiest / size.window_s, 3),
            "capacity": round(capacity),
        }
        yield f"{count}", measured.figures() | figures


async def measure_most(size: Size) -> Rows:
    """One process with ever more streams, until their chunks come late."""
    with serving_workers(1) as servers:
        for streams in range(size.streams, 6 * size.streams + 1, size.streams // 2):
            figures = (await measure_streams(servers, Paced(streams, size.window_s))).figures()
            yield f"{streams:,}", figures
            if (figures["p99_ms"] or 0) > _LATE_MS:
                break


async def measure_opened(size: Size) -> Rows:
    """The most streams of one worker and of two, each with a part of a core for itself."""
    for count in (1, 2):
        with serving_workers(count) as servers, limiting_cpu(servers.pids, size.share):
            async for row in _find_most(servers, count, size):
                yield row


async def _find_most(servers: Servers, count: int, size: Size) -> Rows:
    """Open more and more streams until chunks come late, and then look more closely."""
    possible, late = 0, 0
    streams = round(count * size.share * _FIRST_OF_A_CORE)
    while not late or late - possible > max(1, 0.03 * late):
        measured = await measure_streams(servers, Paced(streams, size.window_s))
        figures = measured.figures()
        is_late = (figures["p99_ms"] or _LATE_MS) >= _LATE_MS or measured.failed > 0
        possible, late = (possible, streams) if is_late else (streams, late)
        yield f"{count}: {streams:,}", figures
        # never far too many: what they leave unfinished would slow down the next ones
        streams = (possible + late) // 2 if late else round(1.25 * streams)
    yield f"{count}", {"streams": possible}


async def _measure_carrier(carrier: str, size: Size) -> Rows:
    """Chunks to a reader at the process that answers, and at another one."""
    places: tuple[Where, ...] = ("nowhere", "here", "elsewhere")
    with serving_processes(2, carrier) as servers:
        await measure_streams(servers, Paced(50, 1))  # code and connections are warm
        for _ in range(size.repeats):
            for where in places:
                measured = await measure_streams(servers, Paced(size.streams, size.window_s), where)
                yield where, measured.figures()


async def measure_stopping(size: Size) -> Rows:
    """Stops asked of the process that answers, and of another one."""
    for carrier in ("unix", "redis", "postgres"):
        with serving_processes(2, carrier) as servers:
            await measure_stops(servers, 20, port=servers.ports[1])
            for where, port in zip(("here", "elsewhere"), servers.ports, strict=True):
                yield f"{carrier}, {where}", await measure_stops(servers, size.stops, port=port)


async def measure_neighbours(size: Size) -> Rows:
    """Chats of quiet users: alone, and beside somebody who is over a limit or just below it."""
    limits_of: Mapping[Loudness, Mapping[str, str]] = {
        "refused": {"COPILOT_LIMITS_REQUESTS_PER_USER": _LIMIT},
        "allowed": {"COPILOT_LIMITS_RUNS_AT_ONCE_PER_USER": _AT_ONCE},
    }
    for loudness, limits in limits_of.items():
        with serving_workers(1, limits) as servers:
            if loudness == "refused":
                await spend_limit(servers)
            await measure_neighbour(servers, "nobody", 3)
            for _ in range(size.repeats):
                pair: tuple[Loudness, Loudness] = ("nobody", loudness)
                for who in pair:
                    figures = await measure_neighbour(servers, who, size.neighbour_s)
                    yield f"{loudness}: {who}" if who == "nobody" else who, figures


CASES: dict[str, Callable[[Size], Rows]] = {
    "workers": measure_workers,
    "processes": measure_processes,
    "carrier-redis": partial(_measure_carrier, "redis"),
    "carrier-unix": partial(_measure_carrier, "unix"),
    "carrier-postgres": partial(_measure_carrier, "postgres"),
    "stops": measure_stopping,
    "neighbours": measure_neighbours,
    "most": measure_most,
    "opened": measure_opened,
}
