"""Serves the built page and the runtime on one origin: `python -m tests.browser.serve`."""

import argparse
import socket
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from copilot_runtime import CopilotRuntime, OpenAIAdapter
from tests.browser.origin import one_origin


def page_and_runtime(page: Path, model: str) -> ASGIApp:
    adapter = OpenAIAdapter(model="gpt-4o", base_url=f"{model}/v1", api_key="sk-wrong")
    return one_origin(page, CopilotRuntime(adapter=adapter))


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
