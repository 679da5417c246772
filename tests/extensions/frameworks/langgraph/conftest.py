"""One real LangGraph server for all tests of this folder."""

import json
from collections.abc import AsyncGenerator, Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from copilot_runtime.extensions.frameworks.langgraph import LangGraphAgent
from copilot_runtime.extensions.frameworks.langgraph.inprocess import LangGraphInProcessAgent
from tests.extensions.frameworks.langgraph.dev import graphs_of
from tests.extensions.frameworks.langgraph.proxy import Proxy, proxied

CONFIG = Path(__file__).parent / "langgraph.json"

Make = Callable[..., Any]
"""Returns an agent for the name of a graph, with the options of the agent."""


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


@pytest.fixture(params=["on a server", "in process"])
def make(request: pytest.FixtureRequest) -> Make:
    """Make agents of the graphs of `langgraph.json`, in either way."""
    url = request.getfixturevalue("langgraph") if request.param == "on a server" else None

    def make_agent(graph: str, **options: Any) -> Any:
        if url is not None:
            return LangGraphAgent(url, graph=graph, **options)
        return LangGraphInProcessAgent(load_graph(graph), **options)

    return make_agent


def load_graph(name: str) -> Any:
    """Return a graph of the server with a memory of its own."""
    file, _, attribute = json.loads(CONFIG.read_text())["graphs"][name].partition(":")
    module = import_module(f"{__package__}.{Path(file).stem}")
    return getattr(module, attribute).builder.compile(checkpointer=InMemorySaver())
