"""Ingestion: annotated pages into resources in a directory, each case in a process of its own.

One case has the shape of the example of Copilot-LD, 22 pages of 35 kB with 1,275 items. The
others have many small pages, so that the cost of a page can be compared between them.
"""

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.knowledge.suites import Bench, Measurement, Suite, name_size
from benchmarks.streaming.load import Figures
from benchmarks.streaming.processes import rss_mb
from benchmarks.streaming.report import Columns, Table
from benchmarks.streaming.results import Results
from benchmarks.streaming.verdict import Promise, median
from benchmarks.threads.stopwatch import Stopwatch

_EXAMPLE = "ingestion-example"
_FEW = 1000
_MOST = 100_000
_THINGS = 600
"""There are so many, and all pages speak of them."""
_TYPES = ("Person", "Organization", "Drug", "ScholarlyArticle", "Event")
_WORDS = (
    "the of a study shows results in patients with mild to moderate disease after twelve "
    "weeks of treatment compared to placebo"
)


def run(bench: Bench) -> Iterator[Measurement]:
    """Measure the example, and small pages: a thousand, and as many as the sizes say."""
    cases = {_EXAMPLE: (22, 58, 45)}
    for size in sorted({_FEW, *bench.sizes}):
        if size > _MOST:
            bench.say(f"skipped {name_size(size)} pages: too many files")
            continue
        cases[f"ingestion-{name_size(size)}"] = (size, 6, 20)
    for case, (pages, items, words) in cases.items():
        folder = bench.folder / case
        _write_pages(folder / "pages", pages, items, words)
        yield _run_process(case, folder)


def _write_pages(folder: Path, pages: int, items: int, words: int) -> None:
    folder.mkdir(parents=True)
    dice = random.Random(pages)
    for number in range(pages):
        body = "\n".join(_write_item(dice, words, nested=i % 6 == 5) for i in range(items))
        page = f'<!doctype html><html lang="en"><title>{number}</title><body>{body}</body></html>'
        (folder / f"{number:06}.html").write_text(page)


def _write_item(dice: random.Random, words: int, *, nested: bool) -> str:
    number = dice.randrange(_THINGS)
    if nested:
        return (
            '<div itemscope itemtype="https://schema.org/PostalAddress">'
            f'<span itemprop="streetAddress">{number} Road</span> '
            f'<span itemprop="addressLocality">Town {number % 20}</span></div>'
        )
    type = _TYPES[number % len(_TYPES)]
    text = " ".join(dice.choices(_WORDS.split(), k=words))
    return f"""<article itemscope itemtype="https://schema.org/{type}"
  itemid="https://example.com/id/{type}/{number}">
  <h3 itemprop="name">{type} number {number}</h3>
  <p itemprop="description">{text} <b>{number}</b>.</p>
  <time itemprop="datePublished" datetime="2026-05-{1 + number % 28:02}">May</time>
  <a itemprop="url" href="/x/{number}">more</a>
  <link itemprop="worksFor" href="https://example.com/id/Organization/{number * 7 % _THINGS}">
  <meta itemprop="identifier" content="{type}-{number}"></article>"""


def _run_process(case: str, folder: Path) -> Measurement:
    command = [sys.executable, "-m", "benchmarks.knowledge.ingestion", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return Measurement(case, "ours", {}, done.stderr.strip().rpartition("\n")[2])
    return Measurement(case, "ours", json.loads(done.stdout.splitlines()[-1]))


async def measure(folder: Path) -> Figures:
    """Take in pages, the same again, and again after one of them has changed."""
    from copilot_runtime.extensions.knowledge.ingestion import Ingestion
    from copilot_runtime.extensions.knowledge.rdf.page import read_page
    from copilot_runtime.extensions.knowledge.resources import ResourceIndex
    from copilot_runtime.storage import LocalStorage

    read_page(b"<p>", "https://example.com/")  # what is imported is not what is measured
    before = rss_mb([os.getpid()])
    pages = folder / "pages"
    storage = LocalStorage(folder / "store")
    ingestion = Ingestion(ResourceIndex(storage))

    async def take_in() -> tuple[Stopwatch, Any]:
        watch = Stopwatch()
        with watch.lap():
            report = await ingestion.run([pages])
        return watch, report

    first, report = await take_in()
    memory = rss_mb([os.getpid()]) - before
    again, unchanged = await take_in()
    assert unchanged.resources == 0
    one = pages / "000000.html"
    one.write_text(one.read_text().replace(" of ", " OF "))
    change, changed = await take_in()
    assert len(changed.changed) == 1
    await storage.aclose()
    count = len(report.new)
    return {
        "cpu_s": round(first.cpu_s, 3),
        "wall_s": round(first.walls_us[0] / 1e6, 3),
        "page_ms": round(first.cpu_s / count * 1000, 3),
        "unchanged_ms": round(again.cpu_s / count * 1000, 3),
        "change_s": round(change.cpu_s, 3),
        "memory_mb": round(memory, 1),
        "resources": report.resources,
        "triples": report.triples,
    }


def _growth(results: Results) -> float | None:
    """Return how many times the cost of a page among 10,000 is that among 1,000."""
    few = results.median("ingestion-1k", "ours", "page_ms")
    many = results.median("ingestion-10k", "ours", "page_ms")
    return many / few if few and many else None


_COLUMNS: Columns = (
    ("CPU s", "cpu_s"),
    ("wall s", "wall_s"),
    ("CPU ms a page", "page_ms"),
    ("unchanged page ms", "unchanged_ms"),
    ("one changed s", "change_s"),
    ("memory MB", "memory_mb"),
    ("resources", "resources"),
    ("triples", "triples"),
)

SUITE = Suite(
    run=run,
    tables={
        _EXAMPLE: Table("22 pages of 35 kB with 1,276 items (Copilot-LD: 2.0 s)", _COLUMNS),
        **{
            f"ingestion-{name_size(size)}": Table(f"{size:,} pages of six items", _COLUMNS)
            for size in (_FEW, 10_000, _MOST)
        },
    },
    promises=(
        Promise("CPU of 22 pages", *(0.4, 0.3, " s"), median(_EXAMPLE, "ours", "cpu_s")),
        Promise("cost of a page among 10k beside 1k", *(1.2, 1, "x"), _growth),
    ),
)

if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(Path(sys.argv[1])))))
