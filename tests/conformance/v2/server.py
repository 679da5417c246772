"""Our runtime behind one URL for every client, by `python -m tests.conformance.v2.server`.

At /copilotkit all clients are served, by GraphQL, REST and the single endpoint; at the other paths
what the v1 driver knows besides. The Node runtime it is compared with is in `node-runtime/`.
"""

import argparse
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import uvicorn
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.routing import Mount, Route

from copilot_runtime import CopilotRuntime, OpenAIAdapter
from copilot_runtime.adapters.transcription import OpenAITranscriber
from copilot_runtime.agents.agui import AguiAgent
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api import Agent, Caller
from copilot_runtime.api.hooks import Hooks
from copilot_runtime.base.errors import AuthenticationFailed
from copilot_runtime.threads.memory import MemoryThreads
from tests.conformance.v1.server import ACTIONS, ByPath, HookLog, runtimes

BASE = "/copilotkit"
_V1_CLIENT = "x-copilotkit-runtime-client-gql-version"
_KEY = "sk-mock"


def no_denied(connection: HTTPConnection) -> None:
    """Send away whom the scenario `deny` plays."""
    if "x-deny" in connection.headers:
        raise AuthenticationFailed("no token")


def everybody(agent: str, llm: str, v1_llm: str, log: HookLog) -> CopilotRuntime:
    """Return the runtime of clients from 1.10 to 1.74."""

    def model(base_url: str) -> OpenAIAdapter:
        return OpenAIAdapter(model="gpt-4o", base_url=base_url, api_key=_KEY)

    agents: dict[str, Agent] = {
        "default": AguiAgent(agent, description="scripted agent"),
        "builtin": DirectAgent(model(llm)),
    }

    def for_caller(caller: Caller) -> dict[str, Agent]:
        # the v1 driver expects its plain chat to know no agents
        return {} if _V1_CLIENT in caller.headers else agents

    return CopilotRuntime(
        model(f"{v1_llm}/v1"),
        actions=ACTIONS,
        agents=for_caller,
        authenticate=no_denied,
        transcriber=OpenAITranscriber(base_url=llm, api_key=_KEY),
        threads=MemoryThreads(),
        hooks=Hooks(
            before_request=log.before, after_request=log.after, error=log.error, stop=log.stop
        ),
    )


def build(agent: str, llm: str, v1_llm: str, remote: str) -> Starlette:
    """Return one app with every path that the drivers ask."""
    log = HookLog()
    served = {**runtimes(v1_llm, remote, log), BASE: everybody(agent, llm, v1_llm, log)}
    apps = {path: runtime.app(path=path) for path, runtime in served.items()}

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None, None]:
        async with AsyncExitStack() as stack:
            for app in apps.values():
                await stack.enter_async_context(app.router.lifespan_context(app))
            yield

    everything = ByPath(apps)
    routes = [Route("/__log", log.endpoint, methods=["GET", "DELETE"]), Mount("/", everything)]
    return Starlette(routes=routes, lifespan=lifespan)


def main() -> None:
    """Serve until interrupted. With `--port 0` a free port is taken and printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=4112)
    parser.add_argument("--agent", default="http://localhost:4111/", help="v2/agent.mjs")
    parser.add_argument("--llm", default="http://localhost:4110/v1", help="v2/mock-llm.mjs")
    parser.add_argument("--v1-llm", default="http://localhost:4101", help="v1/mock-llm.mjs")
    parser.add_argument("--remote", default="http://localhost:4102", help="v1/fake-remote.mjs")
    options = parser.parse_args()
    app = build(options.agent, options.llm, options.v1_llm, options.remote)
    config = uvicorn.Config(app, host="127.0.0.1", port=options.port, log_level="warning")
    with config.bind_socket() as sock:
        sock.listen()  # whoever reads the address below may come before the server has started
        print(f"every client is served at {BASE}")  # noqa: T201
        print(f"python runtime on http://localhost:{sock.getsockname()[1]}", flush=True)  # noqa: T201
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[sock])


if __name__ == "__main__":
    main()
