"""The doctor names what is wrong and how to mend it, changes nothing, and tells no secret."""

import json
import socket
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from copilot_runtime.cli.main import cli
from tests.operation.stores import build_settings
from tests.threads.conftest import cluster, database

__all__ = ["cluster", "database"]

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command in an empty folder, with settings and variables."""
    monkeypatch.chdir(tmp_path)
    for name in ("COPILOT_THREADS", "OPENAI_API_KEY", "COPILOT_CONFIG"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: str, environ: Mapping[str, str] | None = None, **settings: Any) -> Result:
        (tmp_path / "copilot.yml").write_text(json.dumps({"port": 0, **settings}))
        return CliRunner().invoke(cli, ["doctor", *words], env=environ)

    return run


def findings(result: Result) -> dict[str, dict[str, str]]:
    """Return what was found, by the name of what was looked at; the worst of several."""
    order = ["good", "warning", "problem"]
    rows = sorted(json.loads(result.stdout), key=lambda row: order.index(row["state"]))
    return {row["name"]: row for row in rows}


def test_a_server_that_is_well_has_no_problem_and_leaves_no_trace(run: Run, tmp_path: Path) -> None:
    result = run(knowledge={"storage": "local:knowledge"}, threads="sqlite:a/threads.db")
    assert result.exit_code == 0, result.stdout
    assert "✗" not in result.stdout
    assert "✓ configuration  read from 'copilot.yml'" in result.stdout
    assert "✓ threads        sqlite:a/threads.db is made when it is needed" in result.stdout
    assert "Nobody has to sign in" in result.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["copilot.yml"]


def test_each_thing_that_is_wrong_has_a_way_out(run: Run, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "threads.db")) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    (tmp_path / "audit.jsonl").write_text('{"number": 1, "hash": "forged"}\n')
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        listener.settimeout(0)
        result = run(
            "--json",
            environ={"COPILOT_ADAPTER_NAME": "openai"},
            host="127.0.0.1",
            port=port,
            threads="sqlite:threads.db",
            planner={"store": "sqlite:plans.db"},
            audit={"file": "audit.jsonl"},
            mcp={"servers": ["http://127.0.0.1:1/mcp"]},
            telemetry={"endpoint": "http://127.0.0.1:1", "exporters": ["otlp-http"]},
            knowledge={"storage": "s3://none/x?endpoint=http://127.0.0.1:1&region=r"},
        )
    found = findings(result)
    assert result.exit_code == 1
    wrong = {name for name, row in found.items() if row["state"] == "problem"}
    assert wrong >= {"port", "threads", "audit log", "mcp server", "telemetry", "provider"}
    assert all(found[name]["hint"] for name in wrong - {"knowledge"}), found
    assert "lsof" in found["port"]["hint"]
    assert "another program" in found["threads"]["hint"]
    assert "OPENAI_API_KEY" in found["provider"]["hint"] + found["provider"]["text"]


def test_settings_that_no_server_would_start_with_are_found(run: Run) -> None:
    result = run("--json", tools="nowhere.yml")
    assert result.exit_code == 1
    assert findings(result)["configuration"]["state"] == "problem"
    assert "nowhere.yml" in findings(result)["configuration"]["text"]
    result = run("--json", thread="sqlite:x")
    assert "'thread'" in findings(result)["configuration"]["text"]


def test_files_that_others_may_read_or_write_are_named(run: Run, tmp_path: Path) -> None:
    for name, mode in (("threads.db", 0o644), ("plans.db", 0o666)):
        with closing(sqlite3.connect(tmp_path / name)):
            (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    result = run(threads="sqlite:threads.db", planner={"store": "sqlite:plans.db"})
    assert "! files          Others may read 'threads.db' (mode 0644)." in result.stdout
    assert "✗ files          Others may write 'plans.db' (mode 0666)." in result.stdout
    assert "→ chmod 600 plans.db" in result.stdout


def test_no_secret_is_shown_whatever_fails(run: Run, tmp_path: Path) -> None:
    secret = "hunter2hunter2hunter2hunter2hunter2"
    url = f"postgresql://app:{secret}@127.0.0.1:1/app"
    result = run(
        environ={"OPENAI_API_KEY": f"sk-{secret}", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"},
        threads=url,
        planner={"store": url},
        carrier=f"redis://:{secret}@127.0.0.1:1/0",
        secret=secret,
        audit={"file": "a.jsonl", "key": secret},
        access={"authenticate": ["jwt", "service_tokens"]},
        jwt={"secret": secret, "algorithms": ["HS256"]},
        service_tokens={"secrets": [secret]},
        mcp={"servers": [f"http://u:{secret}@127.0.0.1:1/"]},
        telemetry={
            "endpoint": "http://127.0.0.1:1",
            "exporters": ["otlp-http"],
            "headers": {"authorization": f"Bearer {secret}"},
        },
    )
    assert result.exit_code == 1
    assert "hunter2" not in result.stdout + result.stderr
    assert "✗ threads" in result.stdout


def test_a_database_and_its_clock_are_compared(run: Run, database: str) -> None:
    result = run("--json", threads=database, planner={"store": database})
    found = findings(result)
    assert result.exit_code == 0, result.stdout
    assert found["threads"]["text"].endswith("is made when it is needed")
    assert "seconds between this machine and the database" in found["clock"]["text"]
    assert found["carrier"]["text"] == "messages go by Postgres"


def test_the_model_is_asked_only_if_somebody_wants_it(run: Run) -> None:
    environ = {"COPILOT_ADAPTER_NAME": "demo"}
    assert "not asked" in findings(run("--json", environ=environ))["provider"]["text"]
    asked = findings(run("--json", "--call", environ=environ))["provider"]
    assert "answered in" in asked["text"]


def test_settings_of_all_stores_are_looked_at(run: Run, tmp_path: Path) -> None:
    settings = build_settings(tmp_path)
    result = run(
        "--json",
        **{
            name: {"store": getattr(settings, name).store}
            for name in ("planner", "api_keys", "events", "telemetry")
        },
    )
    assert {*findings(result)} >= {"threads", "plans", "keys", "events", "traces", "disk", "files"}


def test_a_database_without_pgvector_cannot_search_vectors(run: Run, database: str) -> None:
    knowledge = {"storage": "local:knowledge", "vector_database": database}
    result = run("--json", knowledge=knowledge)
    vectors = findings(result)["vectors"]
    assert vectors["state"] == "good" or "Install pgvector" in vectors["hint"]


def test_settings_of_a_program_are_looked_at(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from copilot_runtime import CopilotRuntime, DemoAdapter, Settings\n"
        "settings = Settings(threads='sqlite:elsewhere.db', port=0)\n"
        "runtime = CopilotRuntime(DemoAdapter(), settings=settings)\n"
    )
    found = findings(run("--json", "mine.py:runtime"))
    assert found["threads"]["text"] == "sqlite:elsewhere.db is made when it is needed"
