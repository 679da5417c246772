"""What breaks first when there are many machines, and at which figure.

    .venv/bin/python -m benchmarks.scale.simulation [--chart FILE.svg]

The costs are those of `costs.json`, each with its source: measured on one machine, with processes
that had nothing else to do. The rest is arithmetic about queues: what a resource is asked for in a
second, beside what it can do. Nothing is known about networks and disks that were not measured.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import exp
from pathlib import Path

from benchmarks.scale.chart import draw_chart

_COSTS = Path(__file__).with_name("costs.json")
_UNITS = {"us": 1e-6, "ms": 1e-3, "kB": 1e3, "MB": 1e6, "B": 1.0, "1/s": 1.0}
_FLUSHES = 200.0
"""Commits in a second that a busy process makes at most: one each 5 ms."""
_STEP = 0.1
_MOST = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What things cost: seconds of CPU, or bytes."""

    chunk_model: float
    chunk_run: float
    chunk_read: float
    chunk_sent: float
    chunk_received: float
    chunk_postgres: float
    commit_postgres: float
    entry_redis: float
    chunk_redis: float
    start: float
    start_postgres: float
    connect: float
    connect_postgres: float
    heartbeat_postgres: float
    notify_commit: float
    open_stream: float
    open_reader: float
    idle_process: float
    chunk_bytes: float
    commits: float

    @classmethod
    def load(cls, file: Path = _COSTS) -> "Costs":
        """Read the measured costs."""
        found = json.loads(file.read_text())
        return cls(
            **{
                field.name: found[field.name]["value"] * _UNITS[found[field.name]["unit"]]
                for field in fields(cls)
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Machines, and what people do. An open thread is a page with an open connection."""

    machines: int = 100
    cores: int = 2
    """Of each machine; each has one process."""
    memory: float = 8e9
    """Bytes of each machine."""
    threads: int = 1_000_000
    ask_every: float = 600.0
    """Seconds between two questions in a thread."""
    answer: float = 20.0
    """Seconds of an answer."""
    chunks: float = 20.0
    """Of an answer, in a second."""
    elsewhere: float = 0.05
    """Share of answers that somebody reads at another process: after a reload, in a second tab."""
    postgres_cores: int = 32
    """A machine that was not measured: its cores are taken to be as those here."""
    postgres_connections: int = 1000
    postgres_commits: float = 0.0
    """Commits in a second that its disk allows; 0 for those that were measured."""
    pool: int = 11
    """Connections of a process: ten for statements, one for its lock."""
    inbox: float = 10_000
    """Entries of an inbox, before the oldest are dropped."""
    stall: float = 1.0
    """Seconds for which a process may not read its inbox: a garbage collection, a busy core."""
    by_redis: bool = True
    """Whether messages go by Redis, or by PostgreSQL's NOTIFY."""
    network: float = 1.25e9
    """Bytes in a second to and from Redis: 10 Gbit/s."""

    @property
    def processes(self) -> int:
        return self.machines * self.cores

    @property
    def starts(self) -> float:
        """Runs that begin in a second."""
        return self.threads / self.ask_every

    @property
    def streams(self) -> float:
        """Answers under way."""
        return self.starts * self.answer


@dataclass(frozen=True, slots=True)
class Use:
    """What a resource is asked for, and what it has."""

    resource: str
    asked: float
    limit: float
    unit: str

    @property
    def share(self) -> float:
        return self.asked / self.limit


def list_uses(site: Site, costs: Costs) -> Sequence[Use]:
    """Return the use of each resource, the nearest to its limit first."""
    chunks = site.streams * site.chunks
    sent = chunks * site.elsewhere
    commits = site.processes * count_flushes(chunks / site.processes)
    entries = count_entries(site.processes, sent)
    connects = site.starts * site.elsewhere
    cpu = (
        chunks * (costs.chunk_model + costs.chunk_run + costs.chunk_read)
        + sent * (costs.chunk_sent + costs.chunk_received)
        + site.starts * costs.start
        + connects * costs.connect
    )
    postgres = (
        chunks * costs.chunk_postgres
        + commits * costs.commit_postgres
        + site.starts * costs.start_postgres
        + connects * costs.connect_postgres
        + site.processes * costs.heartbeat_postgres
    )
    memory = (
        site.processes * costs.idle_process
        + site.threads * costs.open_reader
        + site.streams * (costs.open_stream + site.elsewhere * costs.open_reader)
    )
    uses = [
        Use("CPU of the servers", cpu, site.processes, "cores"),
        Use("memory of the servers", memory / 1e9, site.machines * site.memory / 1e9, "GB"),
        Use("commits of PostgreSQL", commits, site.postgres_commits or costs.commits, "1/s"),
        Use("CPU of PostgreSQL", postgres, site.postgres_cores, "cores"),
        Use(
            "connections of PostgreSQL",
            site.processes * site.pool,
            site.postgres_connections,
            "connections",
        ),
    ]
    if site.by_redis:
        redis = entries * costs.entry_redis + sent * costs.chunk_redis
        bytes_sent = 2 * sent * costs.chunk_bytes
        uses += [
            Use("CPU of Redis", redis, 1.0, "cores"),
            Use("network of Redis", bytes_sent / 1e6, site.network / 1e6, "MB/s"),
            Use("an inbox", site.stall * entries / site.processes, site.inbox, "entries"),
        ]
    else:
        uses.append(Use("lock of NOTIFY", entries * costs.notify_commit, 1.0, "s/s"))
    return sorted(uses, key=lambda use: -use.share)


def count_flushes(rate: float) -> float:
    """Return how many intervals of a second have something of what comes at a rate, by chance."""
    return _FLUSHES * (1 - exp(-rate / _FLUSHES))


def count_entries(processes: int, sent: float) -> float:
    """Return the entries of a second: one for each pair of processes and flush with something."""
    pairs = processes * (processes - 1)
    return pairs * count_flushes(sent / pairs) if pairs else 0.0


def find_limit(site: Site, costs: Costs, resource: str) -> int | None:
    """Return at how many open threads a resource is used up; None if it never is."""
    low, high = 0, _MOST
    if _find_share(replace(site, threads=high), costs, resource) < 1:
        return None
    while high - low > max(1, high // 1000):
        middle = (low + high) // 2
        is_enough = _find_share(replace(site, threads=middle), costs, resource) < 1
        low, high = (middle, high) if is_enough else (low, middle)
    return low


def _find_share(site: Site, costs: Costs, resource: str) -> float:
    return next(use.share for use in list_uses(site, costs) if use.resource == resource)


def find_commit_delay(site: Site, costs: Costs) -> float:
    """Return how long a chunk waits for its commit at most, when all processes commit in turn.

    A process has one commit under way, and takes all that came meanwhile into the next one: a
    database that is at its limit makes chunks late, and nothing fails.
    """
    return max(1 / _FLUSHES, site.processes / (site.postgres_commits or costs.commits))


@dataclass(frozen=True, slots=True)
class Return:
    """So many threads come back at a second, over some seconds: after a restart, a lost network."""

    at: float
    threads: float
    over: float
    servers: float = 1.0
    """The share of the servers that is there meanwhile."""


def simulate_return(
    site: Site, costs: Costs, back: Return, seconds: float
) -> Mapping[str, Sequence[float]]:
    """Return how many seconds of work wait at servers and at PostgreSQL, in steps of 0.1 s."""
    base = {use.resource: use for use in list_uses(site, costs)}
    delays: dict[str, list[float]] = {}
    for resource, each in (
        ("CPU of the servers", costs.connect),
        ("CPU of PostgreSQL", costs.connect_postgres),
    ):
        use, waiting = base[resource], 0.0
        delays[resource] = []
        for step in range(round(seconds / _STEP)):
            is_back = back.at <= step * _STEP < back.at + back.over
            capacity = use.limit * (back.servers if resource.endswith("servers") else 1.0)
            work = use.asked + (back.threads / back.over * each if is_back else 0.0)
            waiting = max(0.0, waiting + (work - capacity) * _STEP)
            delays[resource].append(waiting / capacity)
    return delays


def render_table(site: Site, costs: Costs) -> str:
    """Return what is used at a site, and where each resource ends, in Markdown."""
    lines = [
        "| resource | asked for | there is | used | ends at open threads |",
        "|---|---|---|---|---|",
    ]
    for use in list_uses(site, costs):
        limit = find_limit(site, costs, use.resource)
        ends = "never" if limit is None else f"{limit:,}" if limit else "0: too many processes"
        asked, has = _round(use.asked), _round(use.limit)
        lines.append(f"| {use.resource} | {asked} {use.unit} | {has} | {use.share:.0%} | {ends} |")
    return "\n".join(lines)


def _round(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


_ALLOWED = Site(postgres_connections=3_000)
_FAST = replace(_ALLOWED, postgres_commits=40_000)
SITES = {
    "PostgreSQL with its default of 100 connections": Site(postgres_connections=100),
    "it allows 3,000 connections, and commits as measured": _ALLOWED,
    "and its disk takes 40,000 commits a second": _FAST,
    "the same by NOTIFY, without Redis": replace(_FAST, by_redis=False),
    "4 machines with 20,000 threads": Site(
        machines=4, threads=20_000, postgres_cores=2, postgres_connections=100
    ),
}
RETURNS = {
    "a machine of 100 ends": Return(at=5, threads=10_000, over=3, servers=0.99),
    "all come back in 3 s": Return(at=5, threads=1_000_000, over=3),
    "all come back in 60 s": Return(at=5, threads=1_000_000, over=60),
}
_LONG = 90.0


def main() -> None:
    """Print the tables, and draw how long those wait who come back."""
    parser = argparse.ArgumentParser(prog="benchmarks.scale.simulation")
    parser.add_argument("--chart", type=Path, help="where an SVG is written")
    options = parser.parse_args()
    costs = Costs.load()
    for name, site in SITES.items():
        _print_site(name, site, costs)
    series: dict[str, Sequence[float]] = {}
    for name, back in RETURNS.items():
        delays = simulate_return(_FAST, costs, back, _LONG)
        series[name] = [max(pair) for pair in zip(*delays.values(), strict=True)]
        print(f"{name}: those who come back wait {max(series[name]):.1f} s at most")
    if options.chart:
        options.chart.write_text(draw_chart(series, _STEP, "Seconds that those wait who come back"))


def _print_site(name: str, site: Site, costs: Costs) -> None:
    first = list_uses(site, costs)[0]
    limit = find_limit(site, costs, first.resource)
    where = "never" if limit is None else f"at {limit:,} open threads"
    print(f"### {name}\n\n{site.threads:,} open threads, {site.processes} processes.", end=" ")
    print(f"First ends: {first.resource}, {where}.", end=" ")
    print(f"A chunk waits {find_commit_delay(site, costs) * 1000:.0f} ms for its commit at most.\n")
    print(render_table(site, costs), end="\n\n")


if __name__ == "__main__":
    main()
