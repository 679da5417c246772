from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from copilot_runtime.knowledge import Knowledge
from tests.knowledge.library import stocked, write_pages


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    return write_pages(tmp_path)


@pytest.fixture
async def knowledge(pages: Path) -> AsyncIterator[Knowledge]:
    made = await stocked(pages)
    made.link = "/graphql/knowledge/resources/"
    yield made
    await made.aclose()
