"""All kinds of storages, for tests that hold for each of them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from copilot_runtime.storage import LocalStorage, MemoryStorage, Storage


@pytest.fixture(params=["memory", "local"])
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Storage]:
    """An empty storage."""
    storage = MemoryStorage() if request.param == "memory" else LocalStorage(tmp_path / "objects")
    yield storage
    await storage.aclose()
