"""Measures several processes: `python -m benchmarks.scale --help`, in the root."""

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import uvloop

from benchmarks.scale.cases import CASES, Size
from benchmarks.scale.tables import LAYOUT
from benchmarks.streaming.load import Figures
from benchmarks.streaming.report import report
from benchmarks.streaming.results import Results, Row, append_row, read_rows

_QUICK = Size(streams=200, each=100, window_s=3, stops=50, neighbour_s=5, repeats=1, most=2)


def main() -> int:
    """Measure; returns 0, 1 when a case could not be measured, 130 when interrupted."""
    options, status = _options(), 0
    if not options.show:
        if not options.keep:
            options.out.write_text("")
        try:
            uvloop.run(_measure_all(options))
        except KeyboardInterrupt:
            print("\ninterrupted; measured so far:")
            status = 130
    results = Results(read_rows(options.out))
    print(f"\n{report(results, LAYOUT)}\n\nrows: {options.out}")
    return status or int(bool(results.errors()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.scale")
    parser.add_argument("--cases", default=",".join(CASES), help=f"some of {','.join(CASES)}")
    parser.add_argument("--quick", action="store_true", help="less of everything, once")
    parser.add_argument("--repeats", type=int, default=0, help="of each measurement")
    parser.add_argument("--keep", action="store_true", help="add to what is in --out")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results.jsonl"))
    parser.add_argument("--show", action="store_true", help="only print what is in --out")
    return parser.parse_args()


async def _measure_all(options: argparse.Namespace) -> None:
    size = _QUICK if options.quick else Size()
    if options.repeats:
        size = replace(size, repeats=options.repeats)
    for case in options.cases.split(","):
        try:
            async for target, figures in CASES[case](size):
                _keep(options.out, case, target, figures)
        # a case that breaks must not take the figures of the others with it
        except Exception as failure:
            _keep(options.out, case, "-", {}, f"{type(failure).__name__}: {failure}")


def _keep(out: Path, case: str, target: str, figures: Figures, error: str = "") -> None:
    load1 = round(os.getloadavg()[0], 2)
    now = time.strftime("%H:%M:%S")
    row = Row(
        case=case, target=target, repeat=0, load1=load1, time=now, figures=figures, error=error
    )
    append_row(out, row)
    shown = [f"{figure} {value:,g}" for figure, value in figures.items() if value is not None]
    print(f"{case:18}{target:20}{'  '.join([*shown, error]).rstrip()}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
