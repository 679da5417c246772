"""What a chunk costs in each adapter, and in its vendor's SDK: `python -m benchmarks.adapters`.

Both read the same bytes from the same server, in turns, in one process. A missing SDK is skipped:
`pip install openai anthropic google-genai boto3`.
"""

import argparse
import gc
import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import uvloop

from benchmarks.adapters.peers import PAIRS, Pair, Reads, ours
from benchmarks.streaming.load import Figures
from benchmarks.streaming.processes import REPOSITORY
from benchmarks.streaming.report import Layout, Table, report
from benchmarks.streaming.results import Results, Row, append_row, read_rows
from benchmarks.streaming.verdict import Promise, median

CASE = "chunks"
_TABLE = Table(
    "CPU us per chunk of text",
    (("x SDK", "ratio"), ("ours", "ours_us"), ("SDK", "sdk_us"), ("chunks", "chunks")),
)


def main() -> int:
    """Measure; returns 0, 1 when something could not be measured, 130 when interrupted."""
    options, status = _options(), 0
    if not options.show:
        options.out.write_text("")
        try:
            for name in options.adapters.split(","):
                _measure(name, PAIRS[name], options)
        except KeyboardInterrupt:
            print("\ninterrupted; measured so far:")
            status = 130
    results = Results(read_rows(options.out))
    promises = [
        Promise(f"{name}: a chunk beside its SDK", 0.2, 0.1, "x", median(CASE, name, "ratio"))
        for name in PAIRS
    ]
    print(f"\n{report(results, Layout(tables={CASE: _TABLE}, promises=promises))}")
    print(f"\nrows: {options.out}")
    return status or int(bool(results.errors()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.adapters")
    parser.add_argument("--adapters", default=",".join(PAIRS), help=f"some of {','.join(PAIRS)}")
    parser.add_argument("--chunks", type=int, default=20_000, help="of an answer")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="5,000 chunks, 3 times")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results.jsonl"))
    parser.add_argument("--show", action="store_true", help="only print what is in --out")
    options = parser.parse_args()
    if options.quick:
        options.chunks, options.reps = 5_000, 3
    return options


def _measure(name: str, pair: Pair, options: argparse.Namespace) -> None:
    try:
        said = f"{pair.package} {version(pair.package)}"
    except PackageNotFoundError:
        print(f"skipped {name}: {pair.package} is not installed", flush=True)
        return
    print(f"{name} beside {said}", flush=True)
    try:
        with _served(name, options.chunks) as url:
            uvloop.run(_measure_pair(name, pair, url, options))
    # an adapter that breaks must not take the others with it
    except Exception as failure:
        _keep(options.out, name, 0, {}, f"{type(failure).__name__}: {failure}")


async def _measure_pair(name: str, pair: Pair, url: str, options: argparse.Namespace) -> None:
    read, close = ours(pair, url)
    sdk = pair.sdk(url)
    try:
        await _cpu_us(read, options.chunks)  # imports and first connections are not counted
        await _cpu_us(sdk, options.chunks)
        for repeat in range(options.reps):
            mine, theirs = await _cpu_us(read, options.chunks), await _cpu_us(sdk, options.chunks)
            figures: Figures = {
                "ratio": mine / theirs,
                "ours_us": mine,
                "sdk_us": theirs,
                "chunks": options.chunks,
            }
            _keep(options.out, name, repeat, figures)
    finally:
        await close()


async def _cpu_us(read: Reads, chunks: int) -> float:
    """Return the CPU of this process per chunk, of one answer that arrives whole."""
    gc.collect()
    began = time.process_time()
    texts = await read()
    spent = time.process_time() - began
    if texts != chunks:
        raise RuntimeError(f"{texts} texts of {chunks} arrived")
    return spent / chunks * 1e6


@contextmanager
def _served(shape: str, chunks: int) -> Generator[str, None, None]:
    command = [sys.executable, "-m", "benchmarks.adapters.server", shape, str(chunks)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


def _keep(out: Path, name: str, repeat: int, figures: Figures, error: str = "") -> None:
    row = Row(
        case=CASE,
        target=name,
        repeat=repeat,
        load1=round(os.getloadavg()[0], 2),
        time=time.strftime("%H:%M:%S"),
        figures=figures,
        error=error,
    )
    append_row(out, row)
    shown = [f"{figure} {value:,.3g}" for figure, value in figures.items() if value is not None]
    print("  ", "  ".join([*shown, error]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
