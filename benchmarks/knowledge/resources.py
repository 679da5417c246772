"""Resources: messages are stored in a directory, one by one and together, listed and found again.

Beside it the least that any store of files can do: each message is written to a file and renamed.
Copilot-LD needed 2.1 to 3.8 s of CPU for 10,000 messages, which it writes in place, one by one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from benchmarks.knowledge.suites import Bench, Measurement, Suite, name_size
from benchmarks.streaming.load import Figures
from benchmarks.streaming.report import Columns, Table
from benchmarks.streaming.verdict import Promise, ratio
from benchmarks.threads.stopwatch import Stopwatch
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.resources import Resource, ResourceIndex
from copilot_runtime.storage import LocalStorage

_LARGEST = 100_000
_CONVERSATIONS = 100


def run(bench: Bench) -> Iterator[Measurement]:
    """Measure every step with each number of messages."""
    for size in bench.sizes:
        if size > _LARGEST:
            bench.say(f"skipped {name_size(size)} resources: a file each")
            continue
        case = f"resources-{name_size(size)}"
        folder = bench.folder / case
        yield Measurement(case, "files alone", _write_files(folder / "files", size))
        for target, figures in asyncio.run(_measure(folder, size)):
            yield Measurement(case, target, figures)


def _messages(size: int, name: str = "m") -> list[Resource]:
    return [
        Resource(
            Identifier("common.Message", f"{name}{number}", f"common.Conversation.c{number % 100}"),
            f"Message {number} of a conversation that goes on and on.",
            role="user",
        )
        for number in range(size)
    ]


def _write_files(folder: Path, size: int) -> Figures:
    messages = _messages(size)
    for number in range(_CONVERSATIONS):
        (folder / f"common.Conversation.c{number}").mkdir(parents=True)
    watch = Stopwatch()
    with watch.lap():
        for message in messages:
            part = folder / ".part"
            part.write_bytes(message.data)
            part.rename(folder / f"{message.uri}.json")
    return _figures(watch)


async def _measure(folder: Path, size: int) -> list[tuple[str, Figures]]:
    one_by_one = ResourceIndex(LocalStorage(folder / "one-by-one", fsync="never"))
    resources = ResourceIndex(LocalStorage(folder / "together", fsync="never"))
    messages = _messages(size)

    async def put_each() -> None:
        for message in _messages(size):
            await one_by_one.put(message)

    async def load() -> None:
        await ResourceIndex(resources.storage).versions()

    steps: dict[str, Callable[[], Awaitable[object]]] = {
        "put, one by one": put_each,
        "put together": lambda: resources.put_many(_messages(size)),
        "the same again": lambda: resources.put_many(messages),
        "read the catalog": load,
        "find a prefix": lambda: resources.find_by_prefix("common.Conversation.c7"),
        "get 1,000": lambda: resources.get([message.id for message in messages[:1000]]),
        "reconcile": resources.reconcile,
        "delete all": lambda: resources.delete_many(
            f"common.Conversation.c{number}" for number in range(_CONVERSATIONS)
        ),
    }
    results: list[tuple[str, Figures]] = []
    for name, step in steps.items():
        watch = Stopwatch()
        with watch.lap():
            await step()
        results.append((name, _figures(watch)))
    return results


def _figures(watch: Stopwatch) -> Figures:
    return {"wall_s": round(watch.walls_us[0] / 1e6, 3), "cpu_s": round(watch.cpu_s, 3)}


_COLUMNS: Columns = (("seconds", "wall_s"), ("CPU s", "cpu_s"))

SUITE = Suite(
    run=run,
    tables={
        f"resources-{name_size(size)}": Table(f"{size:,} messages in a directory", _COLUMNS)
        for size in (10_000, 100_000)
    },
    promises=(
        Promise(
            "CPU of 10k puts together, against files alone",
            *(1.6, 1.3, " x"),
            ratio("resources-10k", "put together", "files alone", "cpu_s"),
        ),
        Promise(
            "CPU of 10k puts one by one, against files alone",
            *(2.5, 2.0, " x"),
            ratio("resources-10k", "put, one by one", "files alone", "cpu_s"),
        ),
    ),
)
