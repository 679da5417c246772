"""A process that updates an index is killed at any moment, again and again.

`KILLS=50 pytest tests/extensions/knowledge/vectors/test_kill.py` kills it more often.
"""

import asyncio
import os
import random
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.index import Filter
from copilot_runtime.extensions.knowledge.resources import Resource, ResourceIndex
from copilot_runtime.extensions.knowledge.vectors import VectorIndex
from copilot_runtime.storage.local import LocalStorage
from tests.extensions.knowledge.vectors.words import LETTERS, LetterEmbedder

pytestmark = pytest.mark.anyio

KILLS = int(os.environ.get("KILLS", "2"))
RESOURCES = 1500


def make_resources(turn: int) -> list[Resource]:
    """Return resources of which a third is other in each turn."""
    found: list[Resource] = []
    for row in range(RESOURCES):
        version = turn if row % 3 == turn % 3 else 0
        dice = random.Random(f"{row} {version}")
        text = "".join(dice.choices(LETTERS, k=20))
        found.append(Resource(Identifier("common.Note", f"n{row}"), text))
    return found


async def update(folder: str, turn: int) -> None:
    storage = LocalStorage(folder)
    resources = ResourceIndex(storage)
    await resources.put_many(make_resources(turn))
    index = VectorIndex(storage, LetterEmbedder())
    print("ready", flush=True)  # noqa: T201
    await index.update(resources)
    await storage.aclose()


async def test_an_index_is_whole_after_every_kill(tmp_path: Path):
    storage = LocalStorage(tmp_path)
    pause = random.Random(0)
    for turn in range(1, KILLS + 1):
        command = [
            sys.executable,
            "-m",
            "tests.extensions.knowledge.vectors.test_kill",
            str(tmp_path),
        ]
        process = await asyncio.create_subprocess_exec(
            *command, str(turn), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        await process.stdout.readline()
        await asyncio.sleep(pause.uniform(0, 0.15))  # the moment is what the test varies
        with suppress(ProcessLookupError):  # on a fast machine it may have ended
            process.kill()
        await process.wait()
        index = VectorIndex(storage, LetterEmbedder())
        assert await index.count() <= RESOURCES
        found = await index.query([np.ones(len(LETTERS))], Filter(threshold=-1))
        assert len({*found}) == len(found) == await index.count()
    resources = ResourceIndex(storage)
    index = VectorIndex(storage, LetterEmbedder())
    report = await index.update(resources)
    assert report.failed == {}
    assert await index.count() == RESOURCES
    for resource in random.Random(1).sample(await resources.get(await resources.find_all()), 50):
        (best,) = await index.search([resource.content], Filter(limit=1))
        assert best.score == 1
    before = await storage.get_many(await storage.find_by_prefix("vectors/"))
    await VectorIndex(storage, LetterEmbedder()).update(resources)
    assert await storage.get_many(await storage.find_by_prefix("vectors/")) == before


if __name__ == "__main__":
    asyncio.run(update(sys.argv[1], int(sys.argv[2])))
