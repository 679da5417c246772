"""A built page and a runtime on one origin, as a browser likes it best."""

from pathlib import Path

from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from copilot_runtime import CopilotRuntime


def one_origin(page: Path, runtime: CopilotRuntime | ASGIApp) -> ASGIApp:
    """Return an app with the runtime at `/graphql` and the page everywhere else."""
    answers = runtime.app(path="/graphql") if isinstance(runtime, CopilotRuntime) else runtime
    files = StaticFiles(directory=page, html=True)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        ours = scope["type"] == "lifespan" or scope["path"].startswith("/graphql")
        await (answers if ours else files)(scope, receive, send)

    return app
