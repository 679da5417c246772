"""Tools of gRPC services, made from YAML as the catalog makes them."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime.api import ActionContext, RunInput
from copilot_runtime.extensions.tools.catalog.definition import parse_tools
from copilot_runtime.extensions.tools.catalog.endpoints import Operation, References, Surroundings
from copilot_runtime.extensions.tools.catalog.grpc.endpoint import GrpcEndpoint
from tests.extensions.tools.catalog.grpc.servers import PROTO


class Tool:
    """One tool, and the operation that it stands for."""

    def __init__(self, endpoint: GrpcEndpoint, run: RunInput, context: ActionContext) -> None:
        self.endpoint = endpoint
        self._run = run
        self._context = context

    async def load(self) -> Operation:
        (operation,) = await self.endpoint.load(self._run)
        return operation

    async def call(self, **values: Any) -> Any:
        return await (await self.load()).call(values, self._context)

    async def call_in(self, context: ActionContext, **values: Any) -> Any:
        return await (await self.load()).call(values, context)


MakeTool = Callable[..., Tool]


@pytest.fixture
async def make_tool(run: RunInput, context: ActionContext) -> AsyncGenerator[MakeTool]:
    """Return what makes a tool of one file, in the folder of the tests' `.proto` files."""
    async with AsyncExitStack() as stack:

        def make(
            text: str,
            *,
            services: Mapping[str, Any] | None = None,
            folder: Path = PROTO,
            environ: Mapping[str, str] | None = None,
        ) -> Tool:
            (definition,) = parse_tools(text, "tools.yml").values()
            surroundings = Surroundings(
                folder=folder, references=References(environ or {}), services=services or {}
            )
            options: Any = definition.options
            endpoint = GrpcEndpoint(definition, options, surroundings)
            stack.push_async_callback(endpoint.aclose)
            return Tool(endpoint, run, context)

        yield make
