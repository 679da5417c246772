"""Vectors: our index, beside plain numpy and faiss on the same rows, each in a process of its own.

The rows are random directions: nothing is like anything, so the best are hardly better than the
rest, which is hard for indexes that guess. One thread; CPU is that of the whole process.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.knowledge.suites import Bench, Measurement, Suite, name_size
from benchmarks.streaming.load import Figures
from benchmarks.streaming.processes import rss_mb
from benchmarks.streaming.report import Columns, Table
from benchmarks.streaming.verdict import Promise, highest, lowest, median
from benchmarks.threads.stopwatch import Stopwatch

Floats = NDArray[np.float32]
Search = Callable[[Floats], Awaitable[list[int]]]

_BEST = 10
_QUERIES = 300
_BATCH = 20_000
_DIMENSIONS = (384, 1536)
_LARGEST_BYTES = 4_000_000_000
"""A million rows of 1,536 dimensions are six gigabytes: too many for most machines."""
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a case, what is looked for, and the ten best of each."""

    file: Path
    queries: Floats
    best: NDArray[np.intp]

    def open(self) -> Floats:
        """Map the rows. Who lets go of them does not count them in its memory any more."""
        return np.load(self.file, mmap_mode="r")


def run(bench: Bench) -> Iterator[Measurement]:
    """Measure every target with each number of rows and of dimensions."""
    for size in bench.sizes:
        for dimensions in _DIMENSIONS:
            if size * dimensions * 4 > _LARGEST_BYTES:
                bench.say(f"skipped {name_size(size)} x {dimensions}: too large")
                continue
            case = f"vectors-{name_size(size)}-{dimensions}"
            bench.say(f"{case}: making rows")
            folder = bench.folder / case
            _make_rows(folder, size, dimensions)
            for target in TARGETS:
                yield _run_process(case, target, folder)
            for file in [*folder.rglob("*")]:
                if file.is_file():
                    file.unlink()


def _make_rows(folder: Path, size: int, dimensions: int) -> None:
    folder.mkdir()
    random = np.random.default_rng(size + dimensions)
    vectors = np.lib.format.open_memmap(
        folder / "vectors.npy", "w+", np.float32, (size, dimensions)
    )
    for start in range(0, size, _BATCH):
        part = vectors[start : start + _BATCH]
        part[:] = random.standard_normal(part.shape, np.float32)
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    queries = random.standard_normal((_QUERIES, dimensions), np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    best = np.empty((_QUERIES, _BEST), np.intp)
    for start in range(0, _QUERIES, 50):  # many queries at once, in float64 for the last few
        scores = queries[start : start + 50] @ vectors.T
        near = np.argpartition(scores, -2 * _BEST, axis=1)[:, -2 * _BEST :]
        for row, rows in enumerate(near):
            exact = vectors[rows].astype(np.float64) @ queries[start + row].astype(np.float64)
            best[start + row] = rows[np.argsort(-exact)[:_BEST]]
    np.save(folder / "queries.npy", queries)
    np.save(folder / "best.npy", best)


def _run_process(case: str, target: str, folder: Path) -> Measurement:
    command = [sys.executable, "-m", "benchmarks.knowledge.vectors", target, str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **_ONE_THREAD}, check=False
    )
    if done.returncode:
        return Measurement(case, target, {}, done.stderr.strip().rpartition("\n")[2])
    return Measurement(case, target, json.loads(done.stdout.splitlines()[-1]))


def measure(target: str, folder: Path) -> Figures:
    """Build and ask one target, in this process."""
    file = folder / "vectors.npy"
    rows = Rows(file, np.load(folder / "queries.npy"), np.load(folder / "best.npy"))
    return asyncio.run(_measure(target, folder, rows))


async def _measure(target: str, folder: Path, rows: Rows) -> Figures:
    before = rss_mb([os.getpid()])
    figures, search = await TARGETS[target](folder, rows)
    watch, found = Stopwatch(), 0
    await search(rows.queries[0])
    for query, best in zip(rows.queries, rows.best, strict=True):
        with watch.lap():
            results = await search(query)
        found += len({*results} & {*best.tolist()})
    memory = round(rss_mb([os.getpid()]) - before, 1)
    recall = found / rows.best.size
    return figures | watch.figures() | {"recall": recall, "memory_mb": memory}


async def _ours(folder: Path, rows: Rows) -> tuple[Figures, Search]:
    from copilot_runtime.adapters.embeddings import create_embedder
    from copilot_runtime.extensions.knowledge.identifiers import Identifier
    from copilot_runtime.extensions.knowledge.index import Filter
    from copilot_runtime.extensions.knowledge.vectors import VectorIndex, VectorItem
    from copilot_runtime.storage.local import LocalStorage

    place = folder / f"ours-{os.getpid()}"
    storage = LocalStorage(place)

    def open_index() -> VectorIndex:
        return VectorIndex(storage, create_embedder("hashing"))

    index, built, loaded = open_index(), Stopwatch(), Stopwatch()
    vectors = rows.open()
    with built.lap():
        for start in range(0, len(vectors), _BATCH):
            batch = vectors[start : start + _BATCH]
            await index.add(
                *(
                    VectorItem(Identifier("common.Message", str(start + row), tokens=100), vector)
                    for row, vector in enumerate(batch)
                )
            )
    index = open_index()
    with loaded.lap():
        assert await index.count() == len(vectors)
    del vectors, batch
    filter = Filter(limit=_BEST)

    async def search(query: Floats) -> list[int]:
        return [int(one.name) for one in await index.query([query], filter)]

    disk = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
    return {
        "build_s": built.walls_us[0] / 1e6,
        "load_s": loaded.walls_us[0] / 1e6,
        "disk_mb": round(disk / 1e6, 1),
    }, search


async def _ours_in_float32(folder: Path, rows: Rows) -> tuple[Figures, Search]:
    sys.modules["simsimd"] = None  # type: ignore[assignment]
    return await _ours(folder, rows)


async def _numpy(folder: Path, rows: Rows) -> tuple[Figures, Search]:  # noqa: ARG001
    began = time.perf_counter()
    vectors = np.array(rows.open())
    built = time.perf_counter() - began

    async def search(query: Floats) -> list[int]:
        scores = vectors @ query
        best = np.argpartition(scores, -_BEST)[-_BEST:]
        return best[np.argsort(-scores[best])].tolist()

    return {"build_s": built}, search


async def _faiss(rows: Rows, kind: str) -> tuple[Figures, Search]:
    import faiss

    faiss.omp_set_num_threads(1)
    began = time.perf_counter()
    vectors = np.array(rows.open())
    index: Any = faiss.index_factory(vectors.shape[1], kind, faiss.METRIC_INNER_PRODUCT)
    if not index.is_trained:
        index.train(vectors[:: max(1, len(vectors) // 100_000)])
    index.add(vectors)
    built = time.perf_counter() - began
    del vectors

    async def search(query: Floats) -> list[int]:
        return index.search(query[None], _BEST)[1][0].tolist()

    return {"build_s": built}, search


async def _faiss_flat(folder: Path, rows: Rows) -> tuple[Figures, Search]:  # noqa: ARG001
    return await _faiss(rows, "Flat")


async def _faiss_sq8(folder: Path, rows: Rows) -> tuple[Figures, Search]:  # noqa: ARG001
    return await _faiss(rows, "SQ8")


TARGETS: dict[str, Callable[[Path, Rows], Awaitable[tuple[Figures, Search]]]] = {
    "ours": _ours,
    "ours-float32": _ours_in_float32,
    "numpy": _numpy,
    "faiss-flat": _faiss_flat,
    "faiss-sq8": _faiss_sq8,
}

_COLUMNS: Columns = (
    ("CPU ms", "cpu_ms"),
    ("p50 ms", "p50_ms"),
    ("p99 ms", "p99_ms"),
    ("recall@10", "recall"),
    ("build s", "build_s"),
    ("load s", "load_s"),
    ("memory MB", "memory_mb"),
    ("disk MB", "disk_mb"),
)
_PROMISED = "vectors-100k-1536"

SUITE = Suite(
    run=run,
    tables={
        f"vectors-{name_size(size)}-{dimensions}": Table(
            f"the ten best of {size:,} x {dimensions}", _COLUMNS
        )
        for size in (10_000, 100_000, 1_000_000)
        for dimensions in _DIMENSIONS
    },
    promises=(
        Promise(
            "CPU of a query over 100k x 1536", 20, 12, " ms", median(_PROMISED, "ours", "cpu_ms")
        ),
        Promise(
            "its recall of the ten best",
            *(0.999, 1, ""),
            lowest(_PROMISED, "ours", "recall"),
            at_least=True,
        ),
        Promise(
            "seconds to load 100k x 1536",
            *(1.5, 0.3, " s"),
            highest(_PROMISED, "ours", "load_s"),
        ),
    ),
)

if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]))))
