"""Every store, empty, in the same tests."""

from collections.abc import AsyncGenerator
from contextlib import aclosing as closing
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime.threads import STORES
from copilot_runtime.threads.store import ThreadStore


@pytest.fixture(params=sorted(STORES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, tuple[Any, ...]]:
    """Return the name of a store and where it keeps its threads: an empty place."""
    name: str = request.param
    if name == "memory":
        return name, ()
    if name == "sqlite":
        return name, (tmp_path / "new folder" / "threads.db",)
    return name, (request.getfixturevalue("database"),)


@pytest.fixture
async def store(
    anyio_backend: str, place: tuple[str, tuple[Any, ...]]
) -> AsyncGenerator[ThreadStore, None]:
    name, arguments = place
    module, _, attribute = STORES[name].partition(":")
    store: ThreadStore = getattr(import_module(module), attribute)(*arguments)
    await store.open()
    async with closing(store):
        yield store
