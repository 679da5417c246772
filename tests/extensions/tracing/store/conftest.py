"""Each kind of store, empty."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from copilot_runtime.extensions.tracing.store import MemoryTraceStore, TraceStore
from copilot_runtime.extensions.tracing.store.jsonlines import JsonLinesTraceStore
from copilot_runtime.extensions.tracing.store.sqlite import SqliteTraceStore


@pytest.fixture(params=["memory", "sqlite", "jsonlines"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[TraceStore]:
    """Return a store of each kind, without retention."""
    made = make_store(request.param, tmp_path)
    yield made
    await made.aclose()


def make_store(kind: str, folder: Path) -> TraceStore:
    if kind == "sqlite":
        return SqliteTraceStore(folder / "traces.db", days=0)
    return (
        JsonLinesTraceStore(folder / "traces", days=0)
        if kind == "jsonlines"
        else MemoryTraceStore()
    )
