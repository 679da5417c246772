"""The stores that are measured, each empty and in a place of its own.

A store is made from a folder for its files, and from how many threads it must not forget.
"""

import os
from collections.abc import Callable
from pathlib import Path

from copilot_runtime.threads.store import ThreadStore

POSTGRES_URL = "BENCH_POSTGRES_URL"
"""The environment variable with the URL of an empty database, `postgresql://...`."""


def _memory(folder: Path, threads: int) -> ThreadStore:  # noqa: ARG001
    from copilot_runtime.threads.memory import MemoryThreads

    return MemoryThreads(max_threads=threads)


def _sqlite(folder: Path, threads: int) -> ThreadStore:  # noqa: ARG001
    from copilot_runtime.threads.sqlite import SqliteThreads

    return SqliteThreads(folder / "threads.db")


def _postgres(folder: Path, threads: int) -> ThreadStore:  # noqa: ARG001
    from copilot_runtime.threads.postgres import PostgresThreads

    return PostgresThreads(os.environ[POSTGRES_URL])


STORES: dict[str, Callable[[Path, int], ThreadStore]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgresql": _postgres,
}


def reachable(name: str) -> str:
    """Return why a store cannot be measured, or ""."""
    if name == "postgresql" and not os.environ.get(POSTGRES_URL):
        return f"{POSTGRES_URL} is not set"
    return ""
