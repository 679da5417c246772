"""A graph whose process was killed while it followed its resources."""

import asyncio
import json
import random
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from copilot_runtime.extensions.knowledge.graph import GraphIndex
from copilot_runtime.extensions.knowledge.resources import ResourceIndex
from copilot_runtime.storage import LocalStorage
from tests.extensions.knowledge.graph.scenes import fill

pytestmark = pytest.mark.anyio

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
