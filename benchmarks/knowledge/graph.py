"""The graph: ours, beside pyoxigraph and rdflib with the same triples, each in its own process.

Ten triples for each resource. A pattern is answered with the first ten of the resources that hold
a triple of it; what else a store has for that is told by the subjects of the triples (rdflib), or
by a named graph for each resource (pyoxigraph).
"""

import asyncio
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.knowledge.suites import Bench, Measurement, Suite, name_size
from benchmarks.streaming.load import Figures
from benchmarks.streaming.report import Columns, Table
from benchmarks.streaming.verdict import Promise, highest, median
from benchmarks.threads.stopwatch import Stopwatch

Ask = Callable[[str], Awaitable[int]]
"""Answers a pattern or a query, and returns how many results there are."""

_E = "https://example.invalid/"
_S = "https://schema.org/"
_XSD = "http://www.w3.org/2001/XMLSchema#"
_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_CLASSES = ("Person", "Organization", "Article", "Event", "Place")
_LINKS = ("knows", "memberOf", "about", "location", "author")
_PAGE = 10
_MODULES = (
    "copilot_runtime.extensions.knowledge.graph",
    "copilot_runtime.storage",
    "pyoxigraph",
    "rdflib",
)
_LARGEST_OF_RDFLIB = 100_000
"""A million triples take it half a minute and a gigabyte and a half."""

_PATTERNS: dict[str, tuple[str | None, str | None, str | None]] = {
    "subject": (f"{_E}thing/7", None, None),
    "predicate": (None, f"{_S}knows", None),
    "object": (None, None, f"{_E}thing/7"),
    "type": (None, _TYPE, f"{_S}Person"),
    "wildcard": (None, None, None),
}
_SPARQL = (
    f"SELECT ?name {{ <{_E}thing/7> <{_S}knows> ?a . ?a <{_S}memberOf> ?b . ?b <{_S}name> ?name }}"
)


def run(bench: Bench) -> Iterator[Measurement]:
    """Measure every target with each number of triples."""
    for size in bench.sizes:
        case = f"graph-{name_size(size)}"
        bench.say(f"{case}: making triples")
        folder = bench.folder / case
        _make_files(folder, size)
        for target in TARGETS:
            if target == "rdflib" and size > _LARGEST_OF_RDFLIB:
                bench.say(f"skipped {case} of {target}: too large")
                continue
            yield _run_process(case, target, folder)


def _make_files(folder: Path, size: int) -> None:
    """Write the triples as N-Quads, and as the graph stores them."""
    (folder / "graphs").mkdir(parents=True)
    chance = random.Random(size)
    count = size // 10
    with (
        (folder / "triples.nq").open("w") as quads,
        (folder / "graphs" / "index.jsonl").open("w") as index,
    ):
        for number in range(count):
            triples = [*_triples(number, count, chance)]
            quads.writelines(f"{triple} <urn:{number}> .\n" for triple in triples)
            line = {
                "id": f"common.Message.{number}",
                "identifier": {"type": "common.Message", "name": str(number), "tokens": 100},
                "version": "1",
                "triples": "\n".join(f"{triple} ." for triple in triples),
            }
            index.write(json.dumps(line, separators=(",", ":")) + "\n")


def _triples(number: int, count: int, chance: random.Random) -> Iterator[str]:
    thing = f"<{_E}thing/{number}>"
    day = f"20{number % 25:02}-0{number % 9 + 1}-1{number % 10}"
    yield f"{thing} <{_TYPE}> <{_S}{_CLASSES[number % 5]}>"
    yield f'{thing} <{_S}name> "Thing number {number}"'
    yield f'{thing} <{_S}description> "What there is to say about number {number}"@en'
    yield f'{thing} <{_S}position> "{number % 1000}"^^<{_XSD}integer>'
    yield f'{thing} <{_S}dateCreated> "{day}"^^<{_XSD}date>'
    for link in _LINKS:
        yield f"{thing} <{_S}{link}> <{_E}thing/{chance.randrange(count)}>"


def _run_process(case: str, target: str, folder: Path) -> Measurement:
    command = [sys.executable, "-m", "benchmarks.knowledge.graph", target, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return Measurement(case, target, {}, done.stderr.strip().rpartition("\n")[2])
    return Measurement(case, target, json.loads(done.stdout.splitlines()[-1]))


def measure(target: str, folder: Path) -> Figures:
    """Load and ask one target, in this process. Its imports are not measured."""
    for module in _MODULES:
        import_module(module)
    return asyncio.run(_measure(target, folder))


async def _measure(target: str, folder: Path) -> Figures:
    loaded = Stopwatch()
    with loaded.lap():
        ask = await TARGETS[target](folder)
    figures: Figures = {
        "load_s": loaded.walls_us[0] / 1e6,
        "load_cpu_s": loaded.cpu_s,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }
    for name in (*_PATTERNS, "sparql"):
        began = time.perf_counter()
        assert await ask(name) or name == "sparql"
        if name == "sparql":
            figures["first_sparql_s"] = time.perf_counter() - began
        watch = Stopwatch()
        for _ in range(50):
            with watch.lap():
                await ask(name)
        figures[f"{name}_ms"] = watch.figures()["p50_ms"]
    await ask("close")
    return figures


async def _ours(folder: Path, sparql_store: str = "memory") -> Ask:
    from copilot_runtime.extensions.knowledge.graph import GraphIndex, Pattern, read_options
    from copilot_runtime.extensions.knowledge.index import Filter
    from copilot_runtime.storage import LocalStorage

    graph = GraphIndex(LocalStorage(folder), read_options({"sparql_store": sparql_store}))
    page = Filter(limit=_PAGE)
    patterns = {name: Pattern(*parts) for name, parts in _PATTERNS.items()}
    await graph.find(filter=page)

    async def ask(name: str) -> int:
        if name == "close":
            await graph.aclose()
            return 0
        if name == "sparql":
            return len((await graph.sparql(_SPARQL)).rows)
        return len(await graph.find(patterns[name], page))

    return ask


async def _ours_on_disk(folder: Path) -> Ask:
    return await _ours(folder, "disk")


async def _pyoxigraph(folder: Path) -> Ask:
    from pyoxigraph import NamedNode, RdfFormat, Store

    store = Store()
    store.bulk_load(path=folder / "triples.nq", format=RdfFormat.N_QUADS)
    patterns: dict[str, Any] = {
        name: [None if part is None else NamedNode(part) for part in parts]
        for name, parts in _PATTERNS.items()
    }

    async def ask(name: str) -> int:
        if name == "close":
            return 0
        if name == "sparql":
            found: Any = store.query(_SPARQL, use_default_graph_as_union=True)
            return len([*found])
        holders: set[str] = set()
        subject, predicate, object = patterns[name]
        for quad in store.quads_for_pattern(subject, predicate, object, None):
            holders.add(str(quad.graph_name))
            if len(holders) == _PAGE:
                break
        return len(holders)

    return ask


async def _rdflib(folder: Path) -> Ask:
    from rdflib import Dataset, URIRef

    graph = Dataset(default_union=True)
    graph.parse(folder / "triples.nq", format="nquads")
    patterns: dict[str, Any] = {
        name: tuple(None if part is None else URIRef(part) for part in parts)
        for name, parts in _PATTERNS.items()
    }

    async def ask(name: str) -> int:
        if name == "close":
            return 0
        if name == "sparql":
            return len([*graph.query(_SPARQL)])
        return len([*islice({str(one[0]) for one in graph.triples(patterns[name])}, _PAGE)])

    return ask


TARGETS: dict[str, Callable[[Path], Awaitable[Ask]]] = {
    "ours": _ours,
    "ours-disk": _ours_on_disk,
    "pyoxigraph": _pyoxigraph,
    "rdflib": _rdflib,
}

_COLUMNS: Columns = (
    ("load s", "load_s"),
    ("load CPU s", "load_cpu_s"),
    ("peak MB", "peak_mb"),
    ("subject ms", "subject_ms"),
    ("predicate ms", "predicate_ms"),
    ("object ms", "object_ms"),
    ("type ms", "type_ms"),
    ("all ms", "wildcard_ms"),
    ("SPARQL join ms", "sparql_ms"),
    ("first SPARQL s", "first_sparql_s"),
)
_PROMISED = "graph-1M"

SUITE = Suite(
    run=run,
    tables={
        f"graph-{name_size(size)}": Table(
            f"the first page of patterns in {size:,} triples", _COLUMNS
        )
        for size in (10_000, 100_000, 1_000_000)
    },
    promises=(
        Promise("seconds to load 1M triples", 6, 5, " s", highest(_PROMISED, "ours", "load_s")),
        Promise("memory for it", 500, 460, " MB", highest(_PROMISED, "ours", "peak_mb")),
        *(
            Promise(
                f"first page of a pattern with a bound {part}",
                *(1, 0.5, " ms"),
                median(_PROMISED, "ours", f"{part}_ms"),
            )
            for part in ("subject", "predicate", "object")
        ),
        Promise(
            "first page of everything", 1, 0.5, " ms", median(_PROMISED, "ours", "wildcard_ms")
        ),
    ),
)

if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]))))
