"""Files of SQLite that several programs share, and who may read them."""

import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from contextlib import aclosing as closing
from pathlib import Path

import pytest

from copilot_runtime.database.sqlite.file import create_private_file
from copilot_runtime.extensions.knowledge.events.sqlite import SqliteEventLog
from copilot_runtime.extensions.planner.sqlite import SqlitePlanLog
from copilot_runtime.extensions.tracing.store.sqlite import SqliteTraceStore
from copilot_runtime.threads.sqlite import SqliteThreads
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

Store = SqliteThreads | SqlitePlanLog | SqliteEventLog | SqliteTraceStore


async def open_threads(path: Path) -> Store:
    store = SqliteThreads(path)
    await store.open()
    return store


async def open_plans(path: Path) -> Store:
    store = SqlitePlanLog(path)
    await store.open()
    return store


async def open_events(path: Path) -> Store:
    store = SqliteEventLog(path)
    await store.find_end()
    return store


async def open_traces(path: Path) -> Store:
    store = SqliteTraceStore(path)
    await store.get_trace("t")
    return store


# another program, such as `copilot-runtime operate threads list`, or sqlite3: it looks, and ends
READER = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.close()"


def read_elsewhere(path: Path) -> None:
    command = [sys.executable, "-c", READER, path, "SELECT count(*) FROM sqlite_master"]
    subprocess.run(command, check=True)


@in_one_test("opened", [open_threads, open_plans, open_events, open_traces])
async def test_a_program_that_ends_leaves_the_log_to_two_stores_of_this_one(
    opened: Callable[[Path], Awaitable[Store]], tmp_path: Path
) -> None:
    path = tmp_path / "shared.db"
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(closing(await opened(path)))
        before = path.with_name("shared.db-wal").stat().st_ino

        read_elsewhere(path)

        assert path.with_name("shared.db-wal").stat().st_ino == before


def test_a_link_to_a_file_that_is_not_there_makes_it_private(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")

    create_private_file(tmp_path / "link")

    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        create_private_file(tmp_path)
