"""Measures the planner beside LangGraph: `python -m benchmarks.planner --help`, in the root."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.planner.shapes import SHAPES
from benchmarks.streaming.installs import venv, venv_python
from benchmarks.streaming.load import Figures
from benchmarks.streaming.report import Columns, Layout, Table, report
from benchmarks.streaming.results import Results, Row, append_row, read_rows
from benchmarks.streaming.verdict import Promise, highest, ratio

_ROOT = Path(__file__).parents[2]
_PEER = Path(__file__).parent / "targets" / "langgraph"
_DURABILITIES = {"langgraph": "async", "langgraph-sync": "sync"}
_OURS = "ours"
_SIZES = (10, 100, 1000)
_RESTART = 10_000
_LOOPS = 100


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
    parser = argparse.ArgumentParser(prog="benchmarks.planner")
    parser.add_argument("--reps", type=int, default=5, help="how often each case is measured")
    parser.add_argument("--quick", action="store_true", help="once, and no restart")
    parser.add_argument("--cases", default=",".join(_list_cases()), help="such as flat-1000,loop")
    parser.add_argument("--targets", default=",".join([_OURS, *_DURABILITIES]))
    parser.add_argument("--folder", help="where files are made (the temporary folder)")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results.jsonl"))
    parser.add_argument("--show", action="store_true", help="only print what is in --out")
    options = parser.parse_args()
    options.cases, options.targets = options.cases.split(","), options.targets.split(",")
    if options.quick:
        options.reps = 1
        options.cases = [case for case in options.cases if not case.startswith("restart")]
    return options


def _list_cases() -> Sequence[str]:
    plans = [f"{shape}-{size}" for shape in SHAPES for size in _SIZES]
    return ["loop", *plans, f"restart-{_RESTART}"]


def _measure_all(options: argparse.Namespace) -> None:
    """Measure each case on all targets in turns: a busy machine is busy for all of them."""
    problem = venv(_PEER)() if options.targets != [_OURS] else ""
    for case in options.cases:
        for repeat in range(options.reps):
            for target in options.targets:
                if case == "loop" and target == "langgraph-sync":
                    continue  # nothing is stored
                figures, error = {}, problem if target != _OURS else ""
                if not error:
                    figures, error = _measure(case, target, options.folder)
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
                print(f"{case:15}{target:16}{shown}{error}", flush=True)


def _measure(case: str, target: str, parent: str | None) -> tuple[Figures, str]:
    """Return the figures of one case in processes of their own, or why there are none."""
    name, _, size = case.partition("-")
    with tempfile.TemporaryDirectory(prefix="bench-", dir=parent) as folder:
        if name == "restart":
            _, error = _run(target, "fill", size, folder)
            if error:
                return {}, error
        return _run(target, name, size or str(_LOOPS), folder)


def _run(target: str, case: str, size: str, folder: str) -> tuple[Figures, str]:
    command = [sys.executable, "-m", "benchmarks.planner.ours", case, size, folder]
    if target != _OURS:
        app = str(_PEER / "app.py")
        command = [venv_python(_PEER), app, case, size, folder, _DURABILITIES[target]]
    environment: Mapping[str, str] = {**os.environ, "PYTHONPATH": str(_ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        return {}, done.stderr.strip().rpartition("\n")[2] or f"it ended with {done.returncode}"
    return json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}, ""


_PLAN: Columns = (("CPU ms of a task", "cpu_ms"), ("ms of a task", "wall_ms"))
_RESTARTED: Columns = (("s until its end", "end_s"), ("s to load", "load_s"), ("CPU s", "cpu_s"))

_PROMISED = [f"{shape}-1000" for shape in SHAPES]

LAYOUT = Layout(
    tables={
        "loop": Table("an assistant that calls a tool ten times", (("CPU ms of a call", "cpu_ms"),))
    }
    | {
        f"{shape}-{size}": Table(f"{size:,} {title}", _PLAN)
        for shape, title in SHAPES.items()
        for size in _SIZES
    }
    | {f"restart-{_RESTART}": Table(f"{_RESTART:,} tasks, all but one done", _RESTARTED)},
    peers=["langgraph"],
    promises=[
        *(
            Promise(f"CPU of a task, {case}", 5, 4, " ms", highest(case, _OURS, "cpu_ms"))
            for case in _PROMISED
        ),
        *(
            Promise(
                f"CPU of a task, {case}, to LangGraph's",
                *(1 / 3, 0.3, ""),
                ratio(case, _OURS, "langgraph", "cpu_ms"),
            )
            for case in _PROMISED
        ),
    ],
)

if __name__ == "__main__":
    sys.exit(main())
