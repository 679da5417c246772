"""An ingestion that is killed at any moment is completed by the next one.

`KILLS=50 pytest tests/extensions/knowledge/ingestion/test_kill.py` kills it more often.
"""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from copilot_runtime.extensions.knowledge.ingestion import Ingestion
from copilot_runtime.extensions.knowledge.resources import PREFIX, ResourceIndex
from copilot_runtime.storage import LocalStorage, MemoryStorage, Storage
from tests.extensions.knowledge.ingestion.conftest import DRUG, Shelf, article

KILLS = int(os.environ.get("KILLS", "6"))
FILES = 60
ROOT = Path(__file__).parents[4]

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120 + 30 * KILLS)]


async def test_a_killed_ingestion_is_completed_by_the_next_one(shelf: Shelf) -> None:
    dice = random.Random(KILLS)
    change_files(shelf, dice, FILES)
    seconds = run_to_the_end()
    killed = 0

    for attempt in range(10 * KILLS):
        change_files(shelf, dice, FILES // 2)
        killed += run_and_kill(dice.random() * seconds)
        if attempt % 3 == 0:  # else what was left behind grows
            run_to_the_end()
            await check_store()
        if killed == KILLS:
            break
    run_to_the_end()
    await check_store()

    assert killed == KILLS


def change_files(shelf: Shelf, dice: random.Random, count: int) -> None:
    """Write and delete files: things of their own, a thing of all of them, and texts."""
    for number in dice.sample(range(2 * FILES), count):
        version = str(dice.random())
        page = article(f"{number}", version) + DRUG.replace("All of it", f"{number % 5}")
        name = f"{number}.md" if number % 4 == 0 else f"{number}.html"
        if dice.random() < 0.25 and Path("docs", name).exists():
            shelf.remove(name)
        else:
            shelf.write(name, f"# {version}\n\nText {number}." if number % 4 == 0 else page)


def start() -> subprocess.Popen[str]:
    """Start an ingestion in a process of its own, and wait for its beginning."""
    module = "tests.extensions.knowledge.ingestion.ingest_process"
    process = subprocess.Popen(
        [sys.executable, "-m", module, "store", "docs"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begin\n"
    return process


def run_to_the_end() -> float:
    """Return how many seconds an ingestion took."""
    with start() as process:
        began = time.monotonic()
        assert process.wait() == 0
    return time.monotonic() - began


def run_and_kill(seconds: float) -> bool:
    """Kill an ingestion after some seconds; return whether it was still running."""
    with start() as process:
        time.sleep(seconds)
        process.kill()
        return process.wait() != 0


async def check_store() -> None:
    """See that the store is byte for byte what a calm ingestion makes of the same files."""
    storage = LocalStorage("store")
    calm = MemoryStorage()
    await Ingestion(ResourceIndex(calm)).run(["docs"])
    assert await read_resources(storage) == await read_resources(calm)
    assert await read_versions(storage) == await read_versions(calm)
    before = await read_all(storage)
    report = await Ingestion(ResourceIndex(storage)).run(["docs"])
    assert (report.resources, report.deleted, report.new, report.changed) == (0, 0, [], [])
    assert await read_all(storage) == before
    await storage.aclose()


async def read_resources(storage: Storage) -> dict[str, bytes]:
    return await storage.get_many(sorted(await storage.find_by_prefix(PREFIX)))


async def read_all(storage: Storage) -> dict[str, bytes]:
    return await storage.get_many(sorted(await storage.list()))


async def read_versions(storage: Storage) -> dict[str, str]:
    entries = await ResourceIndex(storage).versions()
    return {uri: entry.version for uri, entry in entries.items()}
