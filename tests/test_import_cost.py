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


def test_the_command_line_imports_what_a_command_needs_when_it_runs() -> None:
    _, modules = loaded_by("import copilot_runtime.cli.main")

    assert modules & (HEAVY - {"typer"} | {"httptools", "numpy"}) == set()


def test_the_runtime_brings_no_provider_and_no_fastapi() -> None:
    _, modules = loaded_by("from copilot_runtime import CopilotRuntime")

    assert modules & {"openai", "anthropic", "fastapi", "typer"} == set()


def test_an_application_brings_graphql_along_only_when_a_client_speaks_it() -> None:
    code = """
from starlette.testclient import TestClient
from copilot_runtime import CopilotRuntime, Settings
with TestClient(CopilotRuntime(settings=Settings(threads="memory")).app()) as client:
    assert client.get("/graphql/info").status_code == 200
"""
    _, modules = loaded_by(code)
    _, modules_with_graphql = loaded_by(
        f'{code}    client.post("/graphql", json={{"query": "{{ hello }}"}})'
    )

    assert modules & {"graphql", "strawberry", "openai", "duckdb", "sqlglot", "plotly"} == set()
    assert modules_with_graphql >= {"graphql", "strawberry"}


def test_a_server_answers_chats_before_it_imports_fastapi() -> None:
    code = """
from starlette.testclient import TestClient
from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import say
runtime = CopilotRuntime(ScriptedAdapter(say("Hello")), settings=Settings(threads="memory"))
with TestClient(runtime.lazy_app()) as client:
    run = {"threadId": "t", "runId": "r", "state": {}, "tools": [], "context": []}
    run |= {"messages": [{"id": "1", "role": "user", "content": "Hi"}], "forwardedProps": {}}
    assert "Hello" in client.post("/graphql/agent/default/run", json=run).text
    assert client.post("/graphql", json={"query": "{ hello }"}).status_code == 200
    import sys
    names = ("mermaid", "waterfall", "stats")
    drawn = {f"copilot_runtime.extensions.tracing.{name}" for name in names}
    assert not drawn & {*sys.modules}, "what draws traces comes when somebody looks at them"
"""
    _, modules = loaded_by(code)
    _, modules_with_docs = loaded_by(f'{code}    assert client.get("/docs").status_code == 200')

    assert "fastapi" not in modules
    assert "fastapi" in modules_with_docs
