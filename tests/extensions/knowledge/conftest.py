from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from copilot_runtime.agents import instructions
from copilot_runtime.extensions.knowledge import Knowledge, updater
from tests.extensions.knowledge.library import stocked, write_pages


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let questions wait as long as a busy machine needs for a first update and a search."""
    monkeypatch.setattr(instructions, "_TIMEOUT", 600.0)
    monkeypatch.setattr(updater, "_FIRST_UPDATE", 600.0)


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    return write_pages(tmp_path)


@pytest.fixture
async def knowledge(pages: Path) -> AsyncIterator[Knowledge]:
    made = await stocked(pages)
    made.path = "/graphql"
    yield made
    await made.aclose()
