"""Importing the package is cheap, and loads nothing that a user may not need."""

import json
import subprocess
import sys

HEAVY = {"openai", "anthropic", "strawberry", "fastapi", "aiohttp", "uvicorn", "typer", "pydantic"}
REPORT = "import json, sys, time; print(json.dumps([time.process_time(), sorted(sys.modules)]))"


def loaded_by(code: str) -> tuple[float, set[str]]:
    """Return the seconds of CPU and the top-level modules that a program has cost."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{REPORT}"], capture_output=True, text=True, check=True
    )
    seconds, modules = json.loads(done.stdout)
    return seconds, {name.partition(".")[0] for name in modules}


def test_the_package_is_cheap_and_brings_nothing_along() -> None:
    bare, _ = loaded_by("pass")
    seconds, modules = loaded_by("import copilot_runtime")

    assert modules & HEAVY == set()
    assert seconds - bare < 0.5


def test_the_runtime_brings_no_provider_and_no_fastapi() -> None:
    _, modules = loaded_by("from copilot_runtime import CopilotRuntime")

    assert modules & {"openai", "anthropic", "fastapi", "typer"} == set()


def test_an_application_brings_graphql_along_only_when_a_client_speaks_it() -> None:
    code = """
from starlette.testclient import TestClient
from copilot_runtime import CopilotRuntime, Settings
client = TestClient(CopilotRuntime(settings=Settings(threads="memory")).app())
assert client.get("/graphql/info").status_code == 200
"""
    _, modules = loaded_by(code)
    _, modules_with_graphql = loaded_by(
        f'{code}client.post("/graphql", json={{"query": "{{ hello }}"}})'
    )

    assert modules & {"graphql", "strawberry", "openai"} == set()
    assert modules_with_graphql >= {"graphql", "strawberry"}
