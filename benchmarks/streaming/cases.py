"""What is measured: each case is a load, or a function that needs more than one."""

import time
from collections.abc import Callable
from dataclasses import replace

from benchmarks.streaming import load
from benchmarks.streaming.load import Figures, Load, Outcome, percentile_ms
from benchmarks.streaming.processes import cpu_s, rss_mb
from benchmarks.streaming.servers import Server

LOADS = {
    # flood: many chunks per read
    "A": Load(streams=32, chunks=2000, timeout_s=100),
    "AL": Load(streams=32, chunks=10_000, timeout_s=100),
    # paced, as users have it: 20 chunks a second each
    "B": Load(streams=200, chunks=200, delay_ms=50, first_after_ms=200, ramp_s=1, timeout_s=60),
    "B1": Load(streams=20, chunks=100, delay_ms=50, first_after_ms=200, ramp_s=0.3, timeout_s=60),
    "C20": Load(streams=1000, chunks=100, delay_ms=50, ramp_s=2, timeout_s=60),
    # short chats on kept connections
    "D": Load(streams=16, chunks=1, requests=800, timeout_s=60),
    "DH": Load(streams=16, chunks=1, requests=400, history=200, timeout_s=60),
    # the arguments of one call
    "T": Load(streams=8, chunks=2000, tool="setColor", timeout_s=60),
}
QUICK = {
    "A": replace(LOADS["A"], chunks=1000),
    "B": replace(LOADS["B"], streams=100, chunks=60),
    "D": replace(LOADS["D"], requests=400),
}
_OPEN_STREAMS = (1, 50, 200, 1000)
_ABORTS = Load(streams=100, chunks=300, delay_ms=50, ramp_s=0.5, abort_after=5, timeout_s=30)
_NOTICE_S = 3
_LEFTOVERS_S = 13


def measure(case: str, server: Server, *, quick: bool) -> tuple[Figures, list[str]]:
    """Run one case; returns its figures and the first problems of failed chats."""
    server.mock.forget()
    if case in SPECIAL:
        return SPECIAL[case](server)
    outcome = load.run(QUICK.get(case, LOADS[case]) if quick else LOADS[case], server.destination)
    paths = _paths(outcome, server)
    rss = {"rss_after_mb": round(rss_mb(server.family()), 1)}
    return outcome.figures | paths | rss, outcome.problems[:3]


def _paths(outcome: Outcome, server: Server) -> Figures:
    """Split the time to the first chunk: from client to mock, and from mock to client."""
    streams = server.mock.streams()
    firsts = outcome.tally.firsts
    up = [streams[key]["arrive_us"] - times.sent for key, times in firsts.items() if key in streams]
    down = [times.first_chunk - times.first_chunk_left_mock for times in firsts.values()]
    return {
        "request_path_p50_ms": percentile_ms(up, 0.5),
        "first_chunk_path_p50_ms": percentile_ms(down, 0.5),
    }


def measure_memory(server: Server) -> tuple[Figures, list[str]]:
    """Case C: resident memory of a fresh process with more and more streams open."""
    fresh = Server(server.name, server.target, server.mock)
    figures: Figures = {}
    problems: list[str] = []
    failed = 0
    try:
        fresh.start()
        load.run(Load(streams=4, chunks=50), fresh.destination)
        time.sleep(0.3)
        figures["idle_mb"] = round(rss_mb(fresh.family()), 1)
        for streams in _OPEN_STREAMS:
            slow = Load(
                streams=streams, chunks=4, delay_ms=1000, ramp_s=1, timeout_s=30, sample_rss_s=0.2
            )
            outcome = load.run(slow, fresh.destination)
            figures[f"open_{streams}_mb"] = outcome.figures["rss_peak_mb"]
            figures["after_mb"] = outcome.figures["rss_after_mb"]
            figures["ttft_p99_ms"] = outcome.figures["ttft_p99_ms"]
            failed += len(outcome.problems)
            problems += outcome.problems
    finally:
        fresh.stop()
    one, many = figures["open_1_mb"], figures["open_1000_mb"]
    assert one is not None and many is not None
    figures["kb_per_stream"] = round((many - one) / 0.999, 1)
    return figures | {"failed": failed}, problems[:3]


def measure_start(server: Server) -> tuple[Figures, list[str]]:
    """Case E: how long a fresh process takes until its first whole answer."""
    fresh = Server(server.name, server.target, server.mock)
    try:
        listening_s, first_answer_s = fresh.start()
        time.sleep(0.5)
        pids = fresh.family()
        return {
            "listening_s": round(listening_s, 3),
            "first_answer_s": round(first_answer_s, 3),
            "start_cpu_s": cpu_s(pids),
            "rss_mb": round(rss_mb(pids), 1),
            "failed": 0,
        }, []
    finally:
        fresh.stop()


def measure_aborts(server: Server) -> tuple[Figures, list[str]]:
    """Case F: clients leave in the middle; how soon are the upstream connections closed?

    `went_on` counts the streams that were read to their end without a reader.
    """
    outcome = load.run(_ABORTS, server.destination)
    time.sleep(_NOTICE_S)
    streams, aborts = server.mock.streams(), outcome.tally.aborts
    leaked = sum(not streams[key]["end_us"] for key in aborts)
    gaps = [streams[key]["end_us"] - left for key, left in aborts.items() if streams[key]["early"]]
    if leaked:
        time.sleep(_LEFTOVERS_S)
        streams = server.mock.streams()
    went_on = sum(bool(streams[key]["end_us"]) and not streams[key]["early"] for key in aborts)
    return {
        "aborted": len(aborts),
        "closed": len(gaps),
        "leaked": leaked,
        "went_on": went_on,
        "close_p50_ms": percentile_ms(gaps, 0.5),
        "close_p99_ms": percentile_ms(gaps, 0.99),
        "failed": len(outcome.problems),
    }, outcome.problems[:3]


SPECIAL: dict[str, Callable[[Server], tuple[Figures, list[str]]]] = {
    "C": measure_memory,
    "E": measure_start,
    "F": measure_aborts,
}
NEEDS_PROCESS = ("C", "E")
ONCE = ("C",)
