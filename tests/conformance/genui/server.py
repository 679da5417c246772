"""Our runtime with user interfaces that models make: `python -m tests.conformance.genui.server`.

One mount for each configuration of the recorded Node runtime, each with the agents `default` and
`other`, which are the same scripted agent.
"""

import argparse
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount
from starlette.types import ASGIApp

from copilot_runtime import CopilotRuntime
from copilot_runtime.agents.agui import AguiAgent
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.settings import Settings
from tests.conformance.v1.server import ByPath

SCHEMA = {
    "catalogId": "https://acme.example/catalog",
    "components": {
        "Column": {
            "type": "object",
            "properties": {"children": {"type": "array"}},
            "required": ["children"],
        },
        "Text": {"type": "object", "properties": {"text": {}}, "required": ["text"]},
    },
}
DEAD_URL = "http://127.0.0.1:4959/none"


def list_mounts(mcp: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the arguments of each runtime by its mount; mappings are as in Node."""
    plain = {"type": "http", "url": mcp}
    weather = {**plain, "serverId": "weather"}
    secret = {"authorization": "Bearer server-secret"}
    more = {**plain, "url": mcp.replace("/mcp", "/more"), "serverId": "more"}
    verbose = {"debugExposure": "verbose", "maxAttempts": 2}
    inject = {"injectA2UITool": True}

    def servers(*items: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"mcp_apps": {"servers": list(items)}}

    return {
        "plain": {},
        "a2ui": {"a2ui": {}},
        "a2ui-off": {"a2ui": {"enabled": False, **inject}},
        "a2ui-inject": {"a2ui": inject},
        "a2ui-named": {"a2ui": {"injectA2UITool": "draw_ui"}},
        "a2ui-schema": {"a2ui": {**inject, "schema": SCHEMA, "recovery": verbose}},
        "a2ui-catalog": {
            "a2ui": {
                "defaultCatalogId": "https://host.example/cat",
                "recovery": {"showProgressTokens": False},
            }
        },
        "a2ui-agents": {"a2ui": {"agents": ["other"], **inject}},
        "mcp": servers({**weather, "headers": secret}),
        "mcp-noid": servers(plain),
        "mcp-bound": servers({**weather, "agentId": "other"}),
        "mcp-dead": servers({**plain, "url": DEAD_URL, "serverId": "dead"}, weather),
        "mcp-policy": servers({**weather, "includeTools": ["show_weather"]}),
        "mcp-dup": servers(plain, plain),
        "ogui": {"open_generative_ui": True},
        "ogui-agents": {"open_generative_ui": {"agents": ["other"]}},
        "all": {"a2ui": inject, "open_generative_ui": True, **servers(weather)},
        # those below are not among the recordings
        "a2ui-uninjected": {"a2ui": {"injectA2UITool": False}},
        "a2ui-legacy": {"a2ui": {**inject, "schema": [{"name": "Text", "props": {}}]}},
        "a2ui-empty": {"a2ui": {"schema": {"catalogId": "empty", "components": {}}}},
        "a2ui-tools": {"a2ui": {"a2uiToolNames": ["paint"], "injectA2UITool": "draw_ui"}},
        "a2ui-once": {"a2ui": {"recovery": {"debugExposure": "collapsed", "maxAttempts": 1}}},
        "mcp-more": servers(more),
        "mcp-paged": servers({**more, "url": mcp.replace("/mcp", "/paged")}),
        "mcp-second": servers(weather, {**more, "url": mcp.replace("/mcp", "/second")}),
        "mcp-all": {"a2ui": {}, "open_generative_ui": True, **servers(more)},
    }


def build_refusal(error: ConfigurationFailed) -> JSONResponse:
    """Return what answers every request with what is wrong with a configuration."""
    return JSONResponse({"error": error.code, "message": str(error)}, status_code=500)


def build(agent: str, mcp: str, threads: str = "memory") -> Starlette:
    """Return one app with all mounts. One that is refused answers every request with the reason."""
    apps: dict[str, ASGIApp] = {}
    served: list[FastAPI] = []
    settings = Settings(cors_origins=("*",))
    for name, options in list_mounts(mcp).items():
        agents = {key: AguiAgent(agent) for key in ("default", "other")}
        store = threads.replace("{mount}", name)
        try:
            runtime = CopilotRuntime(agents=agents, threads=store, settings=settings, **options)
        except ConfigurationFailed as error:
            apps[f"/{name}"] = build_refusal(error)
            continue
        app = runtime.app(path=f"/{name}")
        apps[f"/{name}"] = app
        served.append(app)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None, None]:
        async with AsyncExitStack() as stack:
            for app in served:
                await stack.enter_async_context(app.router.lifespan_context(app))
            yield

    return Starlette(routes=[Mount("/", ByPath(apps))], lifespan=lifespan)


def main() -> None:
    """Serve until interrupted. With `--port 0` a free port is taken and printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=4950)
    parser.add_argument("--agent", default="http://127.0.0.1:4951/", help="the scripted agent")
    parser.add_argument("--mcp", default="http://127.0.0.1:4952/mcp", help="the MCP server")
    parser.add_argument(
        "--threads", default="memory", help="a store; {mount} in it stands for the mount"
    )
    options = parser.parse_args()
    app = build(options.agent, options.mcp, options.threads)
    config = uvicorn.Config(app, host="127.0.0.1", port=options.port, log_level="warning")
    with config.bind_socket() as sock:
        sock.listen()  # whoever reads the address below may come before the server has started
        print(f"python runtime on http://localhost:{sock.getsockname()[1]}", flush=True)  # noqa: T201
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[sock])


if __name__ == "__main__":
    main()
