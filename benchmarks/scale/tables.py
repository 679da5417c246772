"""What is shown of the cases, and what was promised."""

from benchmarks.streaming.report import Columns, Layout, Table
from benchmarks.streaming.results import Results
from benchmarks.streaming.verdict import Measure, Promise, highest, median

_LATENCY: Columns = (("p50 ms", "p50_ms"), ("p99 ms", "p99_ms"))
_SHARED: Columns = (("PostgreSQL us", "postgres_us"), ("Redis us", "redis_us"))
_CHUNK: Columns = (("CPU us/chunk", "us_per_chunk"), ("servers us", "servers_us"))
_PROCESSES: Columns = (
    ("streams possible", "capacity"),
    ("streams", "streams"),
    ("busiest: cores", "busiest_core"),
    *_CHUNK,
)
_OPENED: Columns = (("streams", "streams"), ("CPU us/chunk", "us_per_chunk"), *_LATENCY)
_CARRIER: Columns = (*_CHUNK, *_SHARED, *_LATENCY)
_STOPS: Columns = (
    ("stopped p50 ms", "stop_p50_ms"),
    ("p99 ms", "stop_p99_ms"),
    ("answered p50 ms", "answer_p50_ms"),
    ("p99 ms", "answer_p99_ms"),
    ("CPU ms", "cpu_ms_each"),
)
_NEIGHBOURS: Columns = (
    ("chat p99 ms", "chat_p99_ms"),
    ("chat p50 ms", "chat_p50_ms"),
    ("first p99 ms", "first_p99_ms"),
    ("chunk p99 ms", "chunk_p99_ms"),
    ("chats", "chats"),
    ("loud/s", "loud_per_s"),
    ("refused", "refused_share"),
    ("cores", "cores"),
)


def _times(case: str) -> Measure:
    """Find how many times the streams of one process two have."""
    return lambda results: results.ratio(case, "2", "1", "capacity")


def _times_opened(results: Results) -> float | None:
    """Find how many times the streams of one worker two really had open."""
    return results.ratio("opened", "2", "1", "streams")


def _of_here(case: str) -> Measure:
    """Find what a chunk for a reader elsewhere costs, of one for a reader here."""
    return lambda results: results.ratio(case, "elsewhere", "here", "us_per_chunk")


def _slowest_stop(results: Results) -> float | None:
    found = [
        value
        for carrier in ("unix", "redis", "postgres")
        for value in results.values("stops", f"{carrier}, elsewhere", "stop_p99_ms")
    ]
    return max(found, default=None)


def _beside(loudness: str, figure: str) -> Measure:
    return lambda results: results.ratio("neighbours", loudness, f"{loudness}: nobody", figure)


LAYOUT = Layout(
    tables={
        "workers": Table("workers on one file of SQLite", (*_PROCESSES, *_LATENCY)),
        "processes": Table(
            "processes on one PostgreSQL and one Redis", (*_PROCESSES, *_SHARED, *_LATENCY)
        ),
        "carrier-redis": Table("who reads, through Redis", _CARRIER),
        "carrier-unix": Table("who reads, through a Unix socket", _CARRIER),
        "carrier-postgres": Table("who reads, through NOTIFY", _CARRIER),
        "stops": Table("from the request to the agent", _STOPS),
        "neighbours": Table("chats beside a user without end", _NEIGHBOURS),
        "opened": Table("the most streams of workers with a part of a core each", _OPENED),
        "most": Table("streams of one process", (*_CHUNK, *_LATENCY, ("RSS MB", "rss_mb"))),
    },
    promises=(
        Promise("workers: streams of two, of one", 1.7, 1.9, "x", _times("workers"), True),
        Promise("opened: streams of two workers, of one", 1.7, 1.9, "x", _times_opened, True),
        Promise("processes: streams of two, of one", 1.7, 1.9, "x", _times("processes"), True),
        Promise("a chunk through Redis, of one in memory", 2, 1.6, "x", _of_here("carrier-redis")),
        Promise(
            "a chunk through Redis: p99",
            *(20, 15, " ms"),
            median("carrier-redis", "elsewhere", "p99_ms"),
        ),
        Promise("a stop elsewhere: p99", 50, 20, " ms", _slowest_stop),
        Promise(
            "beside a refused user: p99 of a chat", 1.2, 1.1, "x", _beside("refused", "chat_p99_ms")
        ),
        Promise(
            "beside a busy user: p99 of a chat", 1.2, 1.1, "x", _beside("allowed", "chat_p99_ms")
        ),
        Promise(
            "streams that ended early", 0, 0, "", highest("carrier-redis", "elsewhere", "failed")
        ),
    ),
)
