"""One real LangGraph server for all tests of this folder."""

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

from tests.agents.langgraph.dev import graphs_of
from tests.agents.langgraph.proxy import Proxy, proxied

CONFIG = Path(__file__).parent / "langgraph.json"


@pytest.fixture(scope="session")
def langgraph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start the server with the graphs of `graphs.py`; return its address."""
    with graphs_of(CONFIG, tmp_path_factory.mktemp("langgraph")) as url:
        yield url


@pytest.fixture
async def proxy(anyio_backend: str, langgraph: str) -> AsyncGenerator[Proxy, None]:
    """A way to the server that breaks when it is told to."""
    async with proxied(langgraph) as proxy:
        yield proxy
