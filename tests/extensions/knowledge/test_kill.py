"""A process that appends and puts is killed at any moment, while another one goes on.

`KILLS=50 pytest tests/extensions/knowledge/test_kill.py` kills it more often.
"""

import asyncio
import json
import os
import random
import subprocess
import sys
import textwrap
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from copilot_runtime.extensions.knowledge.graph import GraphIndex
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.resources import Resource, ResourceIndex
from copilot_runtime.storage import LocalStorage
from tests.extensions.knowledge.graph.scenes import fill

pytestmark = pytest.mark.anyio

KILLS = int(os.environ.get("KILLS", "2"))
LOG = "log.jsonl"
PADDING = "x" * 1_000_000
"""So much in a line that many a kill tears one."""


def make_resource(writer: str, number: int) -> Resource:
    return Resource(Identifier("common.Note", f"{writer}{number}"), f"{number} " * 20)


async def append_line(storage: LocalStorage, writer: str, number: int) -> None:
    line = {"writer": writer, "number": number, "padding": PADDING if writer != "alive" else ""}
    await storage.append(LOG, json.dumps(line).encode() + b"\n")


async def write_until_killed(folder: str, writer: str) -> None:
    """Append lines and put resources, and print the number of each pair that is written."""
    storage = LocalStorage(folder)
    resources = ResourceIndex(storage)
    number = 0
    while True:
        await append_line(storage, writer, number)
        await resources.put(make_resource(writer, number))
        await resources.put(Resource(Identifier("common.Note", "same"), f"{writer} {number}"))
        await resources.put_many(make_resource(f"{writer}-many", number + it) for it in range(3))
        print(number, flush=True)  # noqa: T201
        number += 1


async def run_and_kill(
    folder: Path, writer: str, moments: random.Random, work: Callable[[int], Awaitable[None]]
) -> int:
    """Kill a process that writes while `work` is done, and return its last number."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, str(folder), writer, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    numbers = [await process.stdout.readline()]
    for turn in range(moments.randrange(1, 4)):
        await work(turn)
        await asyncio.sleep(moments.uniform(0, 0.01))  # the moment is what the test varies
    with suppress(ProcessLookupError):
        process.kill()
    numbers += (await process.stdout.read()).split()
    await process.wait()
    return int(numbers[-1])


async def test_what_is_written_outlives_every_kill_and_costs_nobody_a_line(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    alive, moments = ResourceIndex(storage), random.Random(0)
    lines: set[tuple[str, int]] = set()
    uris: set[str] = set()

    async def write(writer: str, number: int) -> None:
        await append_line(storage, "alive", len(lines))
        lines.add(("alive", len(lines)))
        resource = make_resource(f"alive-{writer}-", number)
        assert await alive.put(resource)
        uris.add(resource.uri)

    for kill in range(KILLS):
        writer = f"killed{kill}-"
        last = await run_and_kill(tmp_path, writer, moments, lambda it, to=writer: write(to, it))
        await write(writer, 99)
        lines |= {(writer, number) for number in range(last + 1)}
        for number in range(last + 1):
            uris.add(make_resource(writer, number).uri)
            uris |= {make_resource(f"{writer}-many", number + it).uri for it in range(3)}
        for index in (alive, ResourceIndex(LocalStorage(tmp_path))):
            assert not uris - (await index.versions()).keys()

    whole, torn = set[tuple[str, int]](), 0
    for line in (await storage.get(LOG)).splitlines():
        try:
            value = json.loads(line)
            whole.add((value["writer"], value["number"]))
        except ValueError:
            torn += 1
    assert lines <= whole
    assert len(whole - lines) + torn <= KILLS  # of each process, the line that it was at

    await alive.reconcile()
    for index in (alive, ResourceIndex(storage)):
        versions = await index.versions()
        found = await index.get([*versions])
        assert {it.uri: it.version for it in found} == {
            uri: entry.version for uri, entry in versions.items()
        }
        assert len(found) == len(await storage.find_by_prefix("resources/"))


UPDATE = textwrap.dedent(
    """
    import asyncio, sys
    from copilot_runtime.extensions.knowledge.graph import GraphIndex, index
    from copilot_runtime.extensions.knowledge.resources import ResourceIndex
    from copilot_runtime.storage import LocalStorage

    index._BATCH = 5
    storage = LocalStorage(sys.argv[1])
    print("ready", flush=True)
    asyncio.run(GraphIndex(storage).update(ResourceIndex(storage)))
    """
)


async def test_the_next_update_completes_what_a_kill_cut_off(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    resources = ResourceIndex(storage)
    chance = random.Random(8)
    for attempt in range(8):
        texts = {f"m{n}": f'ex:s{n} schema:x "{attempt}" .' for n in range(attempt, 60 + attempt)}
        await fill(resources, texts)
        if attempt:
            await resources.delete(f"common.Message.m{attempt - 1}")
        await asyncio.to_thread(_kill_an_update, tmp_path, chance.uniform(0, 0.15))

        graph = GraphIndex(storage)
        await graph.update(resources)
        again = GraphIndex(storage)

        assert {id.name for id in await again.find(f'? ? "{attempt}"')} == set(texts)
        assert await again.count() == len(texts)
        assert (await again.update(resources)).added == 0
        _check_lines(tmp_path)


def _kill_an_update(folder: Path, seconds: float) -> None:
    command = [sys.executable, "-c", UPDATE, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(seconds)
        process.kill()


def _check_lines(folder: Path) -> None:
    """See that every whole line is JSON: none stands inside another."""
    (index,) = folder.rglob("graphs/index.jsonl")
    for line in index.read_bytes().split(b"\n"):
        if line.endswith(b"}"):
            json.loads(line)


if __name__ == "__main__":
    asyncio.run(write_until_killed(sys.argv[1], sys.argv[2]))
