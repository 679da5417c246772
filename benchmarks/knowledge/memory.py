"""Memory: identifiers appended one by one, and windows over them, beside one write for each.

`ours` counts until all is in the file; what is appended meanwhile is written together. `file` is
the least that an append can be whose line is in the file when it returns: open, a line, close.
`index` is `IndexBase`, which writes each append in a thread.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path

from benchmarks.knowledge.suites import Bench, Measurement, Suite, name_size
from benchmarks.streaming.load import Figures
from benchmarks.streaming.report import Table
from benchmarks.streaming.verdict import Promise, median
from benchmarks.threads.stopwatch import Stopwatch
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.index import IndexBase, Item, encode_item
from copilot_runtime.extensions.knowledge.memory import Memories
from copilot_runtime.storage import LocalStorage

_CHAT = "common.User.ann/common.Conversation.t1"
_BUDGET = 100_000
_WINDOWS = 30
_MOST = 100_000
"""No conversation is longer, and the peers would take minutes."""

Ids = Sequence[Identifier]


def run(bench: Bench) -> Iterator[Measurement]:
    """Measure every target with each length of a conversation."""
    for size in bench.sizes:
        if size > _MOST:
            bench.say(f"skipped memory of {name_size(size)}: no conversation is that long")
            continue
        for target, measure in TARGETS.items():
            folder = bench.folder / f"memory-{size}-{target}"
            figures = asyncio.run(measure(folder, _make_identifiers(size)))
            yield Measurement(f"memory-{name_size(size)}", target, figures)


def _make_identifiers(size: int) -> Ids:
    """Return messages, calls with their results, and now and then a passage that was found."""
    draw = random.Random(size)
    kinds = ("common.Message", "common.Message", "common.Message", "tool.ToolCallMessage")
    return [
        Identifier("common.Chunk", f"p{at}", tokens=300, score=draw.random())
        if at % 50 == 49
        else Identifier(kinds[at % 4], f"m{at}", _CHAT, tokens=draw.randint(5, 150))
        for at in range(size)
    ]


async def _ours(folder: Path, identifiers: Ids) -> Figures:
    storage = LocalStorage(folder)
    memories, appended = Memories(storage), Stopwatch()
    with appended.lap():
        for identifier in identifiers:
            await memories.append(_CHAT, identifier)
        await memories.aclose()
    loaded, window, whole = Stopwatch(), Stopwatch(), Stopwatch()
    with loaded.lap():
        await memories.read(_CHAT)
    for _ in range(_WINDOWS):
        with window.lap():
            await memories.window(_CHAT, _BUDGET)
        with whole.lap():
            await memories.window(_CHAT, 1_000_000_000)
    await storage.aclose()
    return {
        **_append_figures(appended),
        "load_ms": loaded.figures()["cpu_ms"],
        "window_ms": window.figures()["cpu_ms"],
        "window_p99_ms": window.figures()["p99_ms"],
        "whole_ms": whole.figures()["cpu_ms"],
    }


async def _index(folder: Path, identifiers: Ids) -> Figures:
    storage = LocalStorage(folder)
    index, appended = IndexBase(storage), Stopwatch()
    with appended.lap():
        for identifier in identifiers:
            await index.add(Item(identifier))
    await storage.aclose()
    return _append_figures(appended)


async def _file(folder: Path, identifiers: Ids) -> Figures:
    return _write_file(folder, identifiers)


def _write_file(folder: Path, identifiers: Ids) -> Figures:
    folder.mkdir()
    path, appended = folder / "memory.jsonl", Stopwatch()
    with appended.lap():
        for identifier in identifiers:
            with path.open("ab") as file:
                file.write(dumps(encode_item(Item(identifier))) + b"\n")
    return _append_figures(appended)


def _append_figures(watch: Stopwatch) -> Figures:
    return {"append_s": watch.walls_us[0] / 1e6, "append_cpu_s": round(watch.cpu_s, 4)}


TARGETS: dict[str, Callable[[Path, Ids], Coroutine[None, None, Figures]]] = {
    "ours": _ours,
    "index": _index,
    "file": _file,
}

_COLUMNS = (
    ("append all s", "append_s"),
    ("CPU s", "append_cpu_s"),
    ("load CPU ms", "load_ms"),
    ("window CPU ms", "window_ms"),
    ("p99 ms", "window_p99_ms"),
    ("of all CPU ms", "whole_ms"),
)
_PROMISED = "memory-10k"

SUITE = Suite(
    run=run,
    tables={
        f"memory-{name_size(size)}": Table(
            f"{size:,} identifiers appended one by one, and windows over them", _COLUMNS
        )
        for size in (10_000, 100_000)
    },
    promises=(
        Promise(
            "10k appends to a memory, one by one",
            *(0.3, 0.1, " s"),
            median(_PROMISED, "ours", "append_s"),
        ),
        Promise(
            "CPU of a window over 10k messages",
            10,
            5,
            " ms",
            median(_PROMISED, "ours", "window_ms"),
        ),
        Promise(
            "CPU of a window that has all of them",
            *(10, 8, " ms"),
            median(_PROMISED, "ours", "whole_ms"),
        ),
    ),
)
