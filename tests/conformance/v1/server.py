"""Our runtime behind every path the v1 driver knows: `python -m tests.conformance.v1.server`.

The Node runtime it is compared with is `node-runtime/node-runtime.mjs`.
"""

import argparse
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from pydantic import Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from copilot_runtime import (
    AguiAgent,
    CopilotRuntime,
    EmptyAdapter,
    McpServer,
    OpenAIAdapter,
    Settings,
    action,
)
from copilot_runtime.adapters.anthropic import AnthropicAdapter
from copilot_runtime.api import Caller, RunInput
from copilot_runtime.api.hooks import ErrorContext, Hooks
from copilot_runtime.api.messages import Message
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.frameworks.langgraph import LangGraphAgent
from copilot_runtime.extensions.frameworks.remote import RemoteEndpoint

MCP_ECHO = Path(__file__).parent / "mcp_echo.py"


@action(name="getTime")
def get_time(city: Annotated[str, Field(description="City name")]) -> str:
    """Get the time in a city."""
    return f"12:00 in {city}"


@action(name="getObject")
def get_object() -> dict[str, Any]:
    """Return an object."""
    return {"a": 1, "nested": {"b": [True, None]}}


@action(name="getNumber")
def get_number() -> int:
    """Return a number."""
    return 5


@action(name="doNothing")
def do_nothing() -> None:
    """Return nothing."""


@action(name="explode")
def explode(why: str | None = None) -> None:
    """Always throws."""
    raise CopilotError("kaboom")


ACTIONS = [get_time, get_object, get_number, do_nothing, explode]


class HookLog:
    """What the hooks of `/copilotkit` saw, readable at `/__log`."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def before(self, run: RunInput) -> None:
        self._add("before", run, n=len(run.messages), properties=dict(run.properties))

    def after(self, run: RunInput, messages: Sequence[Message]) -> None:
        self._add("after", run, n=len(run.messages), out=[asdict(message) for message in messages])

    def stop(self, run: RunInput) -> None:
        self._add("stop", run, agentName=run.agent)

    def error(self, error: BaseException, context: ErrorContext) -> None:
        code = error.code if isinstance(error, CopilotError) else None
        self.entries.append(
            {
                "hook": "onError",
                "code": code,
                "message": str(error),
                "threadId": context.thread_id,
                "operation": context.operation,
            }
        )

    async def endpoint(self, request: Request) -> JSONResponse:
        if request.method == "DELETE":
            self.entries.clear()
        return JSONResponse(self.entries)

    def _add(self, hook: str, run: RunInput, **details: Any) -> None:
        self.entries.append({"hook": hook, "threadId": run.thread_id, "url": run.url, **details})


def runtimes(llm: str, remote: str, log: HookLog) -> dict[str, CopilotRuntime]:
    """Return the runtime of every path."""

    def openai() -> OpenAIAdapter:
        return OpenAIAdapter(model="gpt-4o", base_url=f"{llm}/v1", api_key="sk-mock")

    def agents() -> CopilotRuntime:
        names = ["state", "tool", "interrupt", "ckinterrupt", "error", "plain"]
        return CopilotRuntime(
            adapter=openai(),
            actions=ACTIONS,
            agents={name: AguiAgent(f"{remote}/agui/{name}") for name in names},
        )

    def endpoint(path: str) -> CopilotRuntime:
        def hook(caller: Caller) -> Mapping[str, str]:
            del caller
            return {"x-from-hook": "1"}

        url = f"{remote}{path}"
        return CopilotRuntime(
            adapter=openai(), remote_endpoints=[RemoteEndpoint(url, before_request=hook)]
        )

    return {
        "/copilotkit": CopilotRuntime(
            adapter=openai(),
            actions=ACTIONS,
            hooks=Hooks(
                before_request=log.before, after_request=log.after, error=log.error, stop=log.stop
            ),
        ),
        "/copilotkit-plain": CopilotRuntime(adapter=openai()),
        "/copilotkit-anthropic": CopilotRuntime(
            adapter=AnthropicAdapter(
                "claude-3-5-sonnet-latest",  # and the rest, as the Node runtime has it
                base_url=llm,
                api_key="sk-mock",
                max_tokens=1024,
                cache=False,
                eager_arguments=False,
            ),
            actions=ACTIONS,
        ),
        "/copilotkit-agents": agents(),
        "/copilotkit-agents-sticky": agents(),
        "/copilotkit-remote": endpoint("/ck"),
        "/copilotkit-remote404": endpoint("/ck404"),
        "/copilotkit-remote500": endpoint("/ck500"),
        "/copilotkit-lgp": CopilotRuntime(
            adapter=openai(),
            agents={
                "lgp_agent": LangGraphAgent(f"{remote}/lgp", graph="lgp_agent", api_key="lsv2_mock")
            },
        ),
        "/copilotkit-mcp": CopilotRuntime(
            adapter=openai(), mcp_servers=[McpServer(command=[sys.executable, str(MCP_ECHO)])]
        ),
        "/copilotkit-empty": CopilotRuntime(adapter=EmptyAdapter()),
        "/copilotkit-cloud": CopilotRuntime(
            adapter=openai(),
            actions=ACTIONS,
            settings=Settings(threads="memory", cloud_base_url=f"{remote}/cloud"),
        ),
    }


class ByPath:
    """Gives each request to the app with the longest matching path."""

    def __init__(self, apps: Mapping[str, ASGIApp]) -> None:
        self.apps = dict(sorted(apps.items(), key=lambda item: len(item[0]), reverse=True))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        for prefix, app in self.apps.items():
            if path == prefix or path.startswith(f"{prefix}/"):
                return await app(scope, receive, send)
        return await JSONResponse({"detail": "not found"}, 404)(scope, receive, send)


def build(llm: str, remote: str) -> Starlette:
    """Return one app with every path of the driver's README."""
    log = HookLog()
    apps = {path: rt.app(path=path) for path, rt in runtimes(llm, remote, log).items()}

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None, None]:
        async with AsyncExitStack() as stack:
            for app in apps.values():
                await stack.enter_async_context(app.router.lifespan_context(app))
            yield

    everything = ByPath(apps)
    return Starlette(
        routes=[
            Route("/__log", log.endpoint, methods=["GET", "DELETE"]),
            Mount("/", everything),
        ],
        lifespan=lifespan,
    )


def main() -> None:
    """Serve until interrupted. With `--port 0` a free port is taken and printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=4100)
    parser.add_argument("--llm", default="http://localhost:4101", help="mock-llm.mjs")
    parser.add_argument("--remote", default="http://localhost:4102", help="fake-remote.mjs")
    options = parser.parse_args()
    app = build(options.llm, options.remote)
    config = uvicorn.Config(app, host="127.0.0.1", port=options.port, log_level="warning")
    with config.bind_socket() as sock:
        sock.listen()  # whoever reads the address below may come before the server has started
        print(f"python runtime on http://localhost:{sock.getsockname()[1]}", flush=True)  # noqa: T201
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[sock])


if __name__ == "__main__":
    main()
