"""Measures the analyst beside LangChain: `python -m benchmarks.analyst --help`, in the root."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.streaming.installs import venv, venv_python
from benchmarks.streaming.load import Figures
from benchmarks.streaming.report import Columns, Layout, Table, report
from benchmarks.streaming.results import Results, Row, append_row, read_rows
from benchmarks.streaming.verdict import Promise, highest, ratio

_ROOT = Path(__file__).parents[2]
_PEER = Path(__file__).parent / "targets" / "langchain"
_OURS = "ours"
_SIZES = (10_000, 1_000_000)
_LARGE = 20_000_000
_OUR_CASES = ("summary", "guard", "copy")
"""What the peer has nothing for: it checks no statement, and copies nothing."""


def main() -> int:
    """Measure; returns 0, 1 when something could not be measured, 130 when interrupted."""
    options, status = _options(), 0
    if not options.show:
        options.out.write_text("")
        try:
            _measure_all(options)
        except KeyboardInterrupt:
            print("\ninterrupted; measured so far:")
            status = 130
    results = Results(read_rows(options.out))
    print(f"\n{report(results, LAYOUT)}\n\nrows: {options.out}")
    return status or int(bool(results.errors()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.analyst")
    parser.add_argument("--reps", type=int, default=3, help="how often each case is measured")
    parser.add_argument("--quick", action="store_true", help="once, with 10,000 rows")
    parser.add_argument("--large", action="store_true", help="with 20 million rows, too")
    parser.add_argument("--cases", default="", help="such as answer-10000,guard-10000")
    parser.add_argument("--targets", default=f"{_OURS},langchain")
    parser.add_argument("--folder", type=Path, help="where files are made (the temporary folder)")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results.jsonl"))
    parser.add_argument("--show", action="store_true", help="only print what is in --out")
    options = parser.parse_args()
    sizes = _SIZES[:1] if options.quick else (*_SIZES, _LARGE) if options.large else _SIZES
    options.cases = options.cases.split(",") if options.cases else _list_cases(sizes)
    options.targets = options.targets.split(",")
    options.reps = 1 if options.quick else options.reps
    return options


def _list_cases(sizes: Sequence[int]) -> Sequence[str]:
    names = ("answer", "summary", "copy")
    each = [f"{name}-{size}" for size in sizes for name in names]
    return [*each, f"fifty-{sizes[-1]}", f"guard-{sizes[0]}"]


def _measure_all(options: argparse.Namespace) -> None:
    """Measure each case on all targets in turns: a busy machine is busy for all of them."""
    problem = venv(_PEER)() if options.targets != [_OURS] else ""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder:
        for case in options.cases:
            for repeat in range(options.reps):
                for target in options.targets:
                    if target != _OURS and case.startswith(_OUR_CASES):
                        continue
                    error = problem if target != _OURS else ""
                    figures: Figures = {}
                    if not error:
                        figures, error = _run(target, case, folder)
                    row = Row(
                        case=case,
                        target=target,
                        repeat=repeat,
                        load1=round(os.getloadavg()[0], 2),
                        time=time.strftime("%H:%M:%S"),
                        figures=figures,
                        error=error,
                    )
                    append_row(options.out, row)
                    shown = "  ".join(f"{name} {value:.3g}" for name, value in figures.items())
                    print(f"{case:18}{target:12}{shown}{error}", flush=True)


def _run(target: str, case: str, folder: str) -> tuple[Figures, str]:
    """Return the figures of one case in a process of its own, or why there are none."""
    name, _, rows = case.partition("-")
    command = [sys.executable, "-m", "benchmarks.analyst.ours", name, rows, folder]
    if target != _OURS:
        command = [venv_python(_PEER), str(_PEER / "app.py"), name, rows, folder]
    environment: Mapping[str, str] = {**os.environ, "PYTHONPATH": str(_ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        return {}, done.stderr.strip().rpartition("\n")[2] or f"it ended with {done.returncode}"
    return json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}, ""


_ANSWER: Columns = (
    ("CPU ms", "cpu_ms"),
    ("ms to the first event", "first_ms"),
    ("ms to the answer", "answer_ms"),
    ("ms, the first question", "cold_ms"),
)
_FIFTY: Columns = (
    ("CPU s", "cpu_s"),
    ("s until all are answered", "wall_s"),
    ("ms to the last first event", "first_ms"),
)
_ALL_SIZES = (*_SIZES, _LARGE)

LAYOUT = Layout(
    tables={
        **{f"answer-{size}": Table(f"a question, {size:,} rows", _ANSWER) for size in _ALL_SIZES},
        **{
            f"fifty-{size}": Table(f"fifty questions at once, {size:,} rows", _FIFTY)
            for size in _ALL_SIZES
        },
        **{
            f"summary-{size}": Table(
                f"the first summary, {size:,} rows", (("CPU s", "cpu_s"), ("s", "wall_s"))
            )
            for size in _ALL_SIZES
        },
        **{
            f"copy-{size}": Table(
                f"the start with a CSV file of {size:,} rows",
                (("s, first", "copy_s"), ("s, again", "reopen_s"), ("MB of CSV", "mb")),
            )
            for size in _ALL_SIZES
        },
        **{
            f"guard-{size}": Table(
                "the guard reads a statement",
                (("CPU ms", "guard_ms"), ("CPU ms, the slowest of 500", "slowest_ms")),
            )
            for size in _ALL_SIZES
        },
    },
    peers=["langchain"],
    promises=[
        *(
            Promise(f"first thought, {size:,} rows", 150, 50, " ms", highest(case, _OURS, figure))
            for size in _SIZES
            for case in [f"answer-{size}"]
            for figure in ["first_cold_ms"]
        ),
        Promise(
            "CPU of a summary of a million rows",
            *(1, 0.6, " s"),
            highest("summary-1000000", _OURS, "cpu_s"),
        ),
        *(
            Promise(
                f"time to the answer, {size:,} rows, to LangChain's",
                *(1, 0.5, ""),
                ratio(f"answer-{size}", _OURS, "langchain", "answer_ms"),
            )
            for size in _SIZES
        ),
    ],
)

if __name__ == "__main__":
    sys.exit(main())
