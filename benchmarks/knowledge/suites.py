"""What is measured: a suite for each system, in a module of its own.

Such a module has a `SUITE`. To add one, write the module and a line in `SUITES`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from benchmarks.streaming.load import Figures
from benchmarks.streaming.report import Table
from benchmarks.streaming.verdict import Promise

SUITES = {
    "resources": "benchmarks.knowledge.resources",
    "vectors": "benchmarks.knowledge.vectors",
    "memory": "benchmarks.knowledge.memory",
    "graph": "benchmarks.knowledge.graph",
    "ingestion": "benchmarks.knowledge.ingestion",
    "policies": "benchmarks.knowledge.policies",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a suite is given: an empty folder, how many things there are to be, a voice."""

    folder: Path
    sizes: Sequence[int]
    say: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Measurement:
    """The figures of one case and one target, or why there are none."""

    case: str
    target: str
    figures: Figures
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The measurements of one system. `tables` has a title and columns for each case."""

    run: Callable[[Bench], Iterator[Measurement]]
    tables: Mapping[str, Table]
    promises: Sequence[Promise] = ()


def load_suite(name: str) -> Suite:
    """Import a suite."""
    return import_module(SUITES[name]).SUITE


def name_size(size: int) -> str:
    """Return 10000 as 10k, and a million as 1M."""
    return f"{size // 1_000_000}M" if size % 1_000_000 == 0 else f"{size // 1000}k"
