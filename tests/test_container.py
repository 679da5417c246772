"""The container: what its health check takes for health, and what a change of the code costs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from fastapi import FastAPI
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp

from copilot_runtime import CopilotRuntime, DemoAdapter, Settings
from tests.in_one_test import in_one_test
from tests.wire_agui.server import serving

DOCKERFILE = (Path(__file__).parent.parent / "Dockerfile").read_text()
pytestmark = pytest.mark.anyio


async def is_healthy(port: int) -> bool:
    """Run the check of the container, as the container would, for a server at a port."""
    found = re.search(r"HEALTHCHECK .*\\\n\s+CMD (.*)", DOCKERFILE)
    assert found is not None
    program, *arguments = json.loads(found[1].replace("timeout=2", "timeout=60"))
    assert program == "python"
    environ = {**os.environ, "COPILOT_PORT": str(port)}
    done = await anyio.run_process(
        [sys.executable, *arguments], env=environ, check=False, stderr=subprocess.DEVNULL
    )
    return done.returncode == 0


def build_mounted_app() -> FastAPI:
    app = FastAPI()
    runtime = CopilotRuntime(DemoAdapter(), settings=Settings(threads="memory"))
    runtime.mount(app, "/api/copilotkit")
    return app


@in_one_test(
    ("app", "is_well"),
    [
        (CopilotRuntime(DemoAdapter(), settings=Settings(threads="memory")).app(), True),
        (build_mounted_app(), True),
        (PlainTextResponse("Who are you?", 401), True),
        (PlainTextResponse("Out of order", 503), False),
    ],
    ids=["a runtime", "a mounted one", "behind a login", "out of order"],
)
async def test_the_health_check_fits_what_is_served(app: ASGIApp, is_well: bool) -> None:
    async with serving(app) as port:
        assert await is_healthy(port) is is_well


async def test_a_server_that_is_gone_is_not_healthy() -> None:
    async with serving(PlainTextResponse()) as port:
        pass
    assert not await is_healthy(port)


def test_dependencies_are_installed_before_the_code_is_there() -> None:
    dependencies = DOCKERFILE.index('".${extras:+[$extras]}"')
    code = DOCKERFILE.index("COPY copilot_runtime copilot_runtime")

    assert dependencies < code
    assert "--no-deps" in DOCKERFILE[code:]


def test_no_extra_is_installed_unless_it_is_chosen() -> None:
    assert 'ARG EXTRAS=""' in DOCKERFILE
