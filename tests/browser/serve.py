"""Serves the built page and the runtime on one origin: `python -m tests.browser.serve`."""

import argparse
import socket
from pathlib import Path

import uvicorn
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from copilot_runtime import CopilotRuntime, OpenAIAdapter


def page_and_runtime(page: Path, model: str) -> ASGIApp:
    """Return an app with the runtime at `/graphql` and the page everywhere else."""
    adapter = OpenAIAdapter(model="gpt-4o", base_url=f"{model}/v1", api_key="sk-wrong")
    runtime = CopilotRuntime(adapter=adapter).app(path="/graphql")
    files = StaticFiles(directory=page, html=True)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        ours = scope["type"] == "lifespan" or scope["path"].startswith("/graphql")
        await (runtime if ours else files)(scope, receive, send)

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="a socket that listens already")
    parser.add_argument("--page", type=Path, required=True, help="the folder of the built page")
    parser.add_argument("--model", required=True, help="the address of the model")
    options = parser.parse_args()
    server = uvicorn.Server(
        uvicorn.Config(page_and_runtime(options.page, options.model), log_level="warning")
    )
    server.run(sockets=[socket.socket(fileno=options.fd)])


if __name__ == "__main__":
    main()
