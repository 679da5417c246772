"""Measures knowledge: `python -m benchmarks.knowledge --help`, in the root."""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.knowledge.suites import SUITES, Bench, Measurement, load_suite
from benchmarks.streaming.report import Layout, report
from benchmarks.streaming.results import Results, Row, append_row, read_rows


def main() -> int:
    """Measure; returns 0, 1 when something could not be measured, 130 when interrupted."""
    options, status = _options(), 0
    if not options.show:
        options.out.write_text("")
        try:
            for name in options.suites:
                _measure(name, options)
        except KeyboardInterrupt:
            print("\ninterrupted; measured so far:")
            status = 130
    results = Results(read_rows(options.out))
    suites = [load_suite(name) for name in options.suites]
    layout = Layout(
        tables={case: table for suite in suites for case, table in suite.tables.items()},
        promises=[promise for suite in suites for promise in suite.promises],
    )
    print(f"\n{report(results, layout)}\n\nrows: {options.out}")
    return status or int(bool(results.errors()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.knowledge")
    parser.add_argument("--suites", default=",".join(SUITES), help=f"some of {','.join(SUITES)}")
    parser.add_argument("--sizes", default="10000,100000,1000000", help="how many of everything")
    parser.add_argument("--quick", action="store_true", help="10,000 of everything")
    parser.add_argument("--folder", help="where files are made (the temporary folder)")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results.jsonl"))
    parser.add_argument("--show", action="store_true", help="only print what is in --out")
    options = parser.parse_args()
    options.suites = options.suites.split(",")
    options.sizes = [10_000] if options.quick else [int(size) for size in options.sizes.split(",")]
    return options


def _measure(name: str, options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder:
        bench = Bench(
            folder=Path(folder), sizes=options.sizes, say=lambda text: print(text, flush=True)
        )
        try:
            for measurement in load_suite(name).run(bench):
                _append(measurement, options.out)
        # a suite that breaks must not take the others with it
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
            first = next(iter(load_suite(name).tables))
            _append(Measurement(first, name, {}, error), options.out)


def _append(measurement: Measurement, out: Path) -> None:
    row = Row(
        case=measurement.case,
        target=measurement.target,
        repeat=0,
        load1=round(os.getloadavg()[0], 2),
        time=time.strftime("%H:%M:%S"),
        figures=measurement.figures,
        error=measurement.error,
    )
    append_row(out, row)
    figures = measurement.figures.items()
    shown = [f"{figure} {value:,g}" for figure, value in figures if value is not None]
    text = "  ".join([*shown, measurement.error]).rstrip()
    print(f"{measurement.case:20}{measurement.target:14}{text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
