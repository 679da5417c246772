"""How long it takes until an agent is stopped by a request to another process."""

import uuid
from time import monotonic_ns

from benchmarks.scale.readers import Window, fetch, read, write_run, write_stop
from benchmarks.scale.servers import Servers
from benchmarks.streaming.load import Figures, percentile_ms

_AT_ONCE = 100
_CHUNKS = 2_000


async def measure_stops(servers: Servers, count: int, *, port: int) -> Figures:
    """Start runs at the first server, and stop each at a port, one after the other."""
    threads = [str(uuid.uuid4()) for _ in range(count)]
    asked: dict[str, int] = {}
    answers: list[int] = []
    servers.stops.write_text("")
    before = servers.cost()
    for start in range(0, count, _AT_ONCE):
        some = threads[start : start + _AT_ONCE]
        runs = [await read(servers.ports[0], write_run(it, _CHUNKS, 50), Window()) for it in some]
        for thread in some:
            asked[thread] = monotonic_ns()
            answer = await fetch(port, write_stop(thread))
            answers.append((monotonic_ns() - asked[thread]) // 1000)
            assert b'"stopped":true' in answer, answer[-300:]
        for run in runs:
            run.close()
    cost = servers.cost() - before
    stopped = [line.split() for line in servers.stops.read_text().splitlines()]
    times = [(int(time) - asked[thread]) // 1000 for thread, time in stopped]
    return {
        "stop_p50_ms": percentile_ms(times, 0.5),
        "stop_p99_ms": percentile_ms(times, 0.99),
        "stop_max_ms": percentile_ms(times, 1),
        "answer_p50_ms": percentile_ms(answers, 0.5),
        "answer_p99_ms": percentile_ms(answers, 0.99),
        "cpu_ms_each": round(cost.total / count * 1000, 3),
        "failed": count - len(times),
    }
