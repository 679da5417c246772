"""Catalogs of tools made of a text, and services that they call."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest

from copilot_runtime.api import ActionContext, RunInput
from copilot_runtime.extensions.tools.catalog import ToolCatalog, ToolResult
from copilot_runtime.extensions.tools.catalog.endpoints import References
from tests.adapters.provider import Provider, serving

RUN = RunInput(thread_id="t", run_id="r", messages=())
CONTEXT = ActionContext(
    thread_id="t",
    run_id="r",
    call_id="c",
    properties={"tenant": "acme"},
    headers={"authorization": "Bearer 1"},
    user="ann",
)
VARIABLES = {"API_KEY": "s3cret-key", "CITY": "Rome"}
Write = Callable[[str], ToolCatalog]


@pytest.fixture
async def server(anyio_backend: str) -> AsyncGenerator[Provider, None]:
    del anyio_backend
    async with serving() as server:
        yield server


@pytest.fixture
async def write(anyio_backend: str, tmp_path: Path) -> AsyncGenerator[Write, None]:
    """Return a function that makes a catalog of a text, which is closed in the end."""
    del anyio_backend
    async with AsyncExitStack() as stack:

        def build(text: str) -> ToolCatalog:
            path = tmp_path / "tools.yml"
            path.write_text(text, encoding="utf-8")
            catalog = ToolCatalog(
                path,
                references=References(VARIABLES, tmp_path / "secrets"),
                read_resources=_read_resources,
                interval=0,
            )
            catalog.load()
            stack.push_async_callback(catalog.aclose)
            return catalog

        yield build


async def call_tool(catalog: ToolCatalog, name: str = "tool", /, **arguments: Any) -> ToolResult:
    """Call a tool as a model does."""
    return await catalog.call(name, orjson.dumps(arguments).decode(), CONTEXT)


async def _read_resources(uris: Sequence[str], context: ActionContext) -> Sequence[str]:
    return [f"{uri} for {context.user}" for uri in uris]
