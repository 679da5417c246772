"""Serves the page and the agent of `examples/react-v2`: `python -m tests.browser.serve_trip`."""

import argparse
import socket
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from copilot_runtime import CopilotRuntime, OpenAIAdapter
from copilot_runtime.threads.url import build_store
from tests.browser.origin import one_origin

EXAMPLE = Path(__file__).parents[2] / "examples" / "react-v2" / "server.py"


def page_and_runtime(page: Path, model: str, threads: Path) -> ASGIApp:
    example = load_example()
    adapter = OpenAIAdapter(model="gpt-4o", base_url=f"{model}/v1", api_key="sk-wrong")
    runtime = CopilotRuntime(
        adapter=adapter,
        agents={example.AGENT: example.TripAgent(adapter)},
        threads=build_store(f"sqlite:{threads}"),
    )
    return one_origin(page, runtime)


def load_example() -> Any:
    """Import the example, whose folder is no package."""
    spec = spec_from_file_location("react_v2_server", EXAMPLE)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="a socket that listens already")
    parser.add_argument("--page", type=Path, required=True, help="the folder of the built page")
    parser.add_argument("--model", required=True, help="the address of the model")
    parser.add_argument("--threads", type=Path, required=True, help="the file of the threads")
    options = parser.parse_args()
    app = page_and_runtime(options.page, options.model, options.threads)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    server.run(sockets=[socket.socket(fileno=options.fd)])


if __name__ == "__main__":
    main()
