"""What is measured: server processes, and the PostgreSQL and Redis that they share."""

import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.streaming.processes import REPOSITORY, Process, cpu_s, family, free_port, rss_mb
from benchmarks.streaming.servers import wait_for_port
from tests.threads.cluster import running_cluster

PATH = "/copilotkit"
_TARGET = Path(__file__).with_name("targets") / "paced.py"
_CHECKOUT = Path(os.environ.get("BENCH_BASE") or REPOSITORY).resolve()
"""The checkout that is served: this one, or another one to compare it with."""


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU in seconds: of each server process, and of what they share."""

    servers: Sequence[float]
    shared: Mapping[str, float]

    def __sub__(self, before: "Cost") -> "Cost":
        return Cost(
            [now - then for now, then in zip(self.servers, before.servers, strict=True)],
            {name: now - before.shared[name] for name, now in self.shared.items()},
        )

    @property
    def total(self) -> float:
        return sum(self.servers) + sum(self.shared.values())


class Servers:
    """Server processes, by their ports, and the processes that they share, by name."""

    def __init__(
        self, ports: Sequence[int], pids: Sequence[int], shared: Mapping[str, int], stops: Path
    ) -> None:
        self.ports = ports
        self.stops = stops
        """Where agents write down when they were stopped."""
        self._pids = pids
        self._shared = shared

    @property
    def pids(self) -> Sequence[int]:
        """The server processes."""
        return self._pids

    def cost(self) -> Cost:
        """Return the CPU that all have used until now."""
        return Cost(
            [cpu_s([pid]) for pid in self._pids],
            {name: cpu_s(family(pid)) for name, pid in self._shared.items()},
        )

    def rss_mb(self) -> float:
        """Return the memory of the server processes."""
        return rss_mb(self._pids)


@contextmanager
def serving_workers(count: int, environ: Mapping[str, str] | None = None) -> Generator[Servers]:
    """Serve with `serve --workers` on one SQLite file."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder, port = Path(name), free_port()
        settings = {"COPILOT_THREADS": f"sqlite:{folder / 'threads.db'}", **(environ or {})}
        process = _start(port, folder, settings, "--workers", str(count))
        try:
            wait_for_port(process, port)
            pids = [pid for pid in family(process.pid) if pid != process.pid]
            pids = pids if count > 1 else family(process.pid)
            yield Servers([port] * count, pids, {}, folder / "stops")
        finally:
            process.stop()


@contextmanager
def serving_processes(
    count: int, carrier: str, environ: Mapping[str, str] | None = None
) -> Generator[Servers]:
    """Serve with processes at ports of their own, that reach each other by a carrier.

    `unix` has them share a file of SQLite, `postgres` and `redis` a database of PostgreSQL.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        settings, shared = dict(environ or {}), dict[str, int]()
        settings["COPILOT_THREADS"] = f"sqlite:{folder / 'threads.db'}"
        if carrier != "unix":
            settings["COPILOT_THREADS"], shared["postgres"] = stack.enter_context(_postgres())
        if carrier == "redis":
            settings["COPILOT_CARRIER"], shared["redis"] = stack.enter_context(_redis(folder))
        ports = [free_port() for _ in range(count)]
        processes = [_start(port, folder, settings) for port in ports]
        for process in processes:
            stack.callback(process.stop)
        for port, process in zip(ports, processes, strict=True):
            wait_for_port(process, port)
        pids = [family(process.pid)[-1] for process in processes]
        yield Servers(ports, pids, shared, folder / "stops")


def _start(port: int, folder: Path, settings: Mapping[str, str], *options: str) -> Process:
    command = [
        *("env", "-C", str(_CHECKOUT), f"PYTHONPATH={_CHECKOUT}"),
        *(sys.executable, "-m", "copilot_runtime", "serve", f"{_TARGET}:runtime"),
        *("--path", PATH, "--port", str(port), *options),
    ]
    environ = {"BENCH_STOPS": str(folder / "stops"), "COPILOT_TELEMETRY_STORE": "none"}
    process = Process(command, {**environ, **settings})
    process.start()
    return process


@contextmanager
def _postgres() -> Generator[tuple[str, int]]:
    """Yield the address of an empty database, and the first process of its server."""
    with running_cluster(syncs=True) as cluster:
        pid = int((cluster.data / "postmaster.pid").read_text().split()[0])
        yield cluster.url, pid


@contextmanager
def _redis(folder: Path) -> Generator[tuple[str, int]]:
    """Yield the address of a Redis that keeps nothing, and its process."""
    port = free_port()
    program = shutil.which("redis-server") or "redis-server"
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    process = Process([*command, "--save", "", "--appendonly", "no"], {})
    process.start()
    try:
        wait_for_port(process, port)
        yield f"redis://127.0.0.1:{port}/0", process.pid
    finally:
        process.stop()
