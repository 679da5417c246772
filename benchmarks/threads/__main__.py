"""Measures the stores of threads: `python -m benchmarks.threads --help`, in the root."""

import argparse
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import uvloop

from benchmarks.streaming.load import Figures
from benchmarks.streaming.processes import rss_mb
from benchmarks.streaming.report import Layout, report
from benchmarks.streaming.results import Results, Row, append_row, read_rows
from benchmarks.threads.cases import CASES, Bench
from benchmarks.threads.connect import CONNECTS, measure_connects
from benchmarks.threads.stores import STORES, reachable
from benchmarks.threads.tables import PROMISES, TABLES

_LAYOUT = Layout(tables=TABLES, promises=PROMISES)


def main() -> int:
    """Measure; returns 0, 1 when a store could not be measured, 130 when interrupted."""
    options, status = _options(), 0
    if not options.show:
        options.out.write_text("")
        try:
            _measure_all(options)
        except KeyboardInterrupt:
            print("\ninterrupted; measured so far:")
            status = 130
    results = Results(read_rows(options.out))
    print(f"\n{report(results, _LAYOUT)}\n\nrows: {options.out}")
    return status or int(bool(results.errors()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.threads")
    parser.add_argument("--stores", default=",".join(STORES), help=f"some of {','.join(STORES)}")
    parser.add_argument("--threads", type=int, default=100_000)
    parser.add_argument("--longest", type=int, default=100_000, help="events of the longest thread")
    parser.add_argument("--quick", action="store_true", help="2,000 threads, of 10,000 events")
    parser.add_argument("--folder", help="where files are made (the temporary folder)")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results.jsonl"))
    parser.add_argument("--show", action="store_true", help="only print what is in --out")
    options = parser.parse_args()
    if options.quick:
        options.threads, options.longest = 2000, 10_000
    return options


def _measure_all(options: argparse.Namespace) -> None:
    for name in options.stores.split(","):
        reason = reachable(name)
        if reason:
            print(f"skipped {name}: {reason}", flush=True)
            continue
        with tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder:
            try:
                uvloop.run(_measure(name, Path(folder), options))
                if name == "sqlite":
                    _measure_connects(name, Path(folder), options.out)
            # a store that breaks must not take the others with it
            except Exception as failure:
                error = f"{type(failure).__name__}: {failure}"
                _keep(options.out, next(iter(CASES)), name, {}, error)


async def _measure(name: str, folder: Path, options: argparse.Namespace) -> None:
    store = STORES[name](folder, options.threads * 2)
    await store.open()
    try:
        for case, measure in CASES.items():
            bench = Bench(
                store=store,
                threads=options.threads,
                longest=options.longest,
                say=partial(_say, case, name),
            )
            figures, error = Figures(), ""
            try:
                figures = await measure(bench) | _size(folder)
            # a case that breaks must not take the figures of the others with it
            except Exception as failure:
                error = f"{type(failure).__name__}: {failure}"
            _keep(options.out, case, name, figures, error)
            if error and case == next(iter(CASES)):
                break  # nothing else means much in a store that is not full
    finally:
        await store.aclose()


def _measure_connects(name: str, folder: Path, out: Path) -> None:
    case = next(iter(CONNECTS))
    try:
        for case, figures in measure_connects(folder):
            _keep(out, case, name, figures)
    except Exception as failure:
        _keep(out, case, name, {}, f"{type(failure).__name__}: {failure}")


def _keep(out: Path, case: str, name: str, figures: Figures, error: str = "") -> None:
    row = Row(
        case=case,
        target=name,
        repeat=0,
        load1=round(os.getloadavg()[0], 2),
        time=time.strftime("%H:%M:%S"),
        figures=figures,
        error=error,
    )
    append_row(out, row)
    shown = [f"{figure} {value:,g}" for figure, value in figures.items() if value is not None]
    _say(case, name, "  ".join([*shown, error]).rstrip())


def _say(case: str, name: str, text: str) -> None:
    print(f"{case:16}{name:12}{text}", flush=True)


def _size(folder: Path) -> Figures:
    disk = sum(file.stat().st_size for file in folder.iterdir())
    return {"disk_mb": round(disk / 1e6, 1), "rss_mb": round(rss_mb([os.getpid()]), 1)}


if __name__ == "__main__":
    sys.exit(main())
