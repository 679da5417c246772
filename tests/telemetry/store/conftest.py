"""Each kind of store, empty."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from copilot_runtime.telemetry.store import MemoryTraceStore, TraceStore
from copilot_runtime.telemetry.store.sqlite import SqliteTraceStore


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[TraceStore]:
    """Return a store of each kind, without retention."""
    made = (
        MemoryTraceStore()
        if request.param == "memory"
        else SqliteTraceStore(tmp_path / "traces.db", days=0)
    )
    yield made
    await made.aclose()
