"""How long something takes, and how much CPU of this process, all threads together."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks.streaming.load import Figures, percentile_ms


@dataclass(slots=True)
class Stopwatch:
    """Times of laps. CPU is that of this process: of a database elsewhere, only our side."""

    walls_us: list[int] = field(default_factory=list[int])
    cpu_s: float = 0

    @contextmanager
    def lap(self) -> Generator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.cpu_s += time.process_time() - cpu
        self.walls_us.append(round((time.perf_counter() - wall) * 1e6))

    def figures(self) -> Figures:
        """Return median, p99 and CPU of a lap, in milliseconds."""
        return {
            "p50_ms": percentile_ms(self.walls_us, 0.5),
            "p99_ms": percentile_ms(self.walls_us, 0.99),
            "cpu_ms": round(self.cpu_s / len(self.walls_us) * 1000, 3),
        }

    def rates(self, count: int) -> Figures:
        """Return how fast `count` things were done in all laps, and the CPU of each."""
        return {
            "per_s": round(count / (sum(self.walls_us) / 1e6)),
            "cpu_us_each": round(self.cpu_s / count * 1e6, 1),
        }
