"""What is shown of the cases, and what was promised."""

from benchmarks.streaming.report import Columns, Table
from benchmarks.streaming.verdict import Measure, Promise
from benchmarks.threads.cases import PROMISED_EVENTS

_RATES: Columns = (("CPU us each", "cpu_us_each"), ("per s", "per_s"))
_LAPS: Columns = (("CPU ms", "cpu_ms"), ("p50 ms", "p50_ms"), ("p99 ms", "p99_ms"))
_SIZES: Columns = (("disk MB", "disk_mb"), ("RSS MB", "rss_mb"))
_REPLAY: Columns = (*_LAPS, ("events read", "events"), ("written", "written"))
_CONNECT: Columns = (*_LAPS, ("events sent", "events"), ("wire kB", "wire_kb"), _SIZES[1])
TABLES = {
    "fill": Table("threads of one short run", (*_RATES, *_SIZES)),
    "append-1": Table("an event at a time", (*_RATES, *_LAPS)),
    "append-200": Table("the next events of 200 runs at a time", (*_RATES, *_LAPS)),
    "list-first": Table("the first page of 50 threads", _LAPS),
    "list-deep": Table("a page in the middle of all threads", _LAPS),
    "replay-short": Table("a thread of one short run", _REPLAY),
    "replay-spoken": Table("a thread of 100 answers, word by word", _REPLAY),
    "replay-calls": Table("a thread of calls, which cannot be shortened", _REPLAY),
    "replay-open": Table("a run that goes on", _REPLAY),
    "replay-longest": Table("the longest thread", (*_REPLAY, *_SIZES)),
    "connect-spoken": Table("the same 100 answers, over AG-UI", _CONNECT),
    "connect-calls": Table("the same calls, over AG-UI", _CONNECT),
    "connect-longest": Table("the longest thread, over AG-UI", _CONNECT),
}


def _slowest(*cases: str) -> Measure:
    """Find the worst CPU of the promised thread in the default store."""
    return lambda results: max(
        (cpu for case in cases for cpu in results.values(case, "sqlite", "cpu_ms")), default=None
    )


PROMISES = (
    Promise(
        f"sqlite: CPU to read {PROMISED_EVENTS:,} events",
        *(100, 50, " ms"),
        _slowest("replay-spoken", "replay-calls", "replay-open"),
    ),
    Promise(
        f"sqlite: CPU of our server to replay {PROMISED_EVENTS:,} events",
        *(100, 50, " ms"),
        _slowest("connect-spoken", "connect-calls"),
    ),
)
