"""Runs the cases on all targets of a suite in turn; prints what was measured, and the verdicts.

Start it in the root of the repository: `python -m benchmarks.streaming.runner --help`.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.streaming import selftest
from benchmarks.streaming.cases import LOADS, NEEDS_PROCESS, ONCE, SPECIAL, measure
from benchmarks.streaming.load import Figures
from benchmarks.streaming.report import Layout, report
from benchmarks.streaming.results import Results, Row, append_row, read_rows
from benchmarks.streaming.servers import Mock, NotReadyError, Server
from benchmarks.streaming.suite import Suite
from benchmarks.streaming.tables import STREAM_TABLES
from benchmarks.streaming.v1 import V1_SUITE

CASES = ("B", "A", "D", "DH", "B1", "C20", "E", "F", "C")
_SHOWN = (
    ("cpu_us_per_chunk", "CPU {:.1f} us/chunk"),
    ("cpu_ms_per_chat", "{:.2f} ms/chat"),
    ("chunks_per_s", "{:,.0f} chunks/s"),
    ("chunk_p99_ms", "chunk p99 {:.1f} ms"),
    ("first_answer_s", "first answer {:.2f} s"),
    ("leaked", "left open {:.0f}"),
    ("went_on", "went on {:.0f}"),
    ("close_p99_ms", "close p99 {:.1f} ms"),
    ("idle_mb", "idle {:.0f} MB"),
    ("kb_per_stream", "{:.0f} kB/stream"),
    ("failed", "failed {:.0f}"),
)


def main(suite: Suite) -> int:
    """Measure; returns 0, 1 when a target could not be measured, 130 when interrupted."""
    options = _options(suite)
    layout = Layout(tables=STREAM_TABLES, peers=suite.peers, promises=suite.promises)
    if options.show:
        print(report(Results(read_rows(options.out)), layout))
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if selftest.main():
        print("the load client does not notice broken streams: nothing was measured")
        return 1
    options.out.write_text("")
    rows: list[Row] = []
    status = 0
    try:
        with ExitStack() as stack:
            servers, status = _start(suite, options.targets, stack)
            stack.callback(_ignore_signals)
            for row in _measure_all(servers, options):
                append_row(options.out, row)
                rows.append(row)
    except KeyboardInterrupt:
        print("\ninterrupted; measured so far:")
        status = 130
    results = Results(rows)
    print(f"\n{report(results, layout)}\n\nrows: {options.out}")
    return status or int(bool(results.errors()))


def _options(suite: Suite) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=suite.module)
    default = ",".join(suite.chosen)
    parser.add_argument("--targets", type=_names(suite.targets), default=default)
    parser.add_argument("--cases", type=_names([*LOADS, *SPECIAL]), help=",".join(CASES))
    parser.add_argument("--reps", type=int, help="repeats of each case (3; with --quick 1)")
    parser.add_argument("--quick", action="store_true", help="B, A and D, smaller")
    parser.add_argument("--out", type=Path, default=suite.out)
    parser.add_argument("--show", action="store_true", help="only print what is in --out")
    options = parser.parse_args()
    options.cases = options.cases or (["B", "A", "D"] if options.quick else list(CASES))
    options.reps = options.reps or (1 if options.quick else 3)
    return options


def _names(known: Iterable[str]) -> Callable[[str], list[str]]:
    def split(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"no {name!r}; known: {', '.join(known)}")
        return names

    return split


def _ignore_signals() -> None:
    """Let nothing disturb the end of the processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _start(suite: Suite, names: Sequence[str], stack: ExitStack) -> tuple[list[Server], int]:
    """Start and warm up the mock and the targets; the status is 1 when one cannot run."""
    mock = Mock()
    stack.callback(mock.stop)
    mock.start()
    servers, status = list[Server](), 0
    for name in names:
        target = suite.targets[name]
        reason = target.prepare() if target.prepare else ""
        if not reason:
            server = Server(name, target, mock)
            stack.callback(server.stop)
            try:
                server.start()
                server.warm_up()
                servers.append(server)
                continue
            except NotReadyError as error:
                reason = str(error)
        print(f"skipped {name}: {reason}", flush=True)
        status = status if target.optional else 1
    return servers, status


def _measure_all(servers: Sequence[Server], options: argparse.Namespace) -> Iterator[Row]:
    """Repeat case by case with the targets in turn, so that all share the machine's moods."""
    for case in options.cases:
        repeats = 1 if case in ONCE else options.reps
        for repeat in range(repeats):
            for server in servers:
                if server.has_process or case not in NEEDS_PROCESS:
                    row = _measure(case, server, repeat, quick=options.quick)
                    print(_progress(row, repeats), flush=True)
                    yield row


def _measure(case: str, server: Server, repeat: int, *, quick: bool) -> Row:
    figures: Figures = {}
    problems, error = list[str](), ""
    load1 = round(os.getloadavg()[0], 2)
    try:
        figures, problems = measure(case, server, quick=quick)
    # a target that breaks must not take the figures of the others with it
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"
    return Row(
        case=case,
        target=server.name,
        repeat=repeat,
        load1=load1,
        time=time.strftime("%H:%M:%S"),
        figures=figures,
        problems=problems,
        error=error,
    )


def _progress(row: Row, repeats: int) -> str:
    parts = [f"{row.case:4}{row.target:13}{row.repeat + 1}/{repeats} "]
    for figure, form in _SHOWN:
        value = row.figures.get(figure)
        if value is not None:
            parts.append(form.format(value))
    return "  ".join([*parts, *row.problems[:1], row.error]).rstrip()


if __name__ == "__main__":
    sys.exit(main(V1_SUITE))
