"""The doctor names what is wrong and how to mend it, changes nothing, and tells no secret."""

import json
import socket
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from typer.testing import CliRunner, Result

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.cli.main import cli
from copilot_runtime.operation.doctor import upstream
from copilot_runtime.testing import ScriptedAdapter
from tests.operation.stores import build_settings
from tests.peers.redis_server import redis_server
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


def test_a_server_that_says_nothing_is_named_beside_others(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "_SECONDS", 1.5)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        servers = [f"https://127.0.0.1:{port}", f"http://127.0.0.1:{port}"]
        result = run("--json", mcp={"servers": servers})
    found = [row["text"] for row in json.loads(result.stdout) if row["name"] == "mcp server"]

    assert found == [
        f"127.0.0.1:{port} does not answer within 1.5 seconds.",
        f"127.0.0.1:{port} can be reached.",
    ]


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


@pytest.mark.parametrize("mark", ["/", "#", "?", "[", "@"])
def test_no_part_of_a_password_is_shown_that_breaks_its_url(run: Run, mark: str) -> None:
    result = run("--json", limits={"store": f"redis://:S3CR{mark}ETpw@127.0.0.1"})
    assert result.exit_code == 1
    assert "'limits.store'" in findings(result)["configuration"]["text"]
    assert "percent-encoded" in findings(result)["configuration"]["text"]
    assert not any(part in result.stdout for part in ("S3CR", "ETpw"))


def test_a_secret_that_stood_in_an_example_is_found(run: Run) -> None:
    secrets = {"secrets": ["0123456789abcdef0123456789abcdef"]}
    found = findings(run("--json", service_tokens=secrets))["configuration"]
    assert found["state"] == "problem"
    assert "the secret of an example" in found["text"]


def test_a_store_of_limits_that_does_not_count_is_found(run: Run) -> None:
    found = findings(run("--json", limits={"store": "redis://127.0.0.1:1"}))["limits"]
    assert found["state"] == "problem"
    assert "limits.store" in found["hint"]
    with redis_server() as redis, redis.running():
        found = findings(run("--json", limits={"store": redis.url}))["limits"]
    assert found["state"] == "good"


def test_an_address_of_grpc_that_another_program_has_is_found(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPILOT_GRPC_SERVICES", "")
    monkeypatch.setattr("copilot_runtime.operation.doctor.machine._PATIENCE", 0.2)
    with (
        socket.create_server(("127.0.0.1", 0)) as http,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        address = f"127.0.0.1:{other.getsockname()[1]}"
        settings = {"port": http.getsockname()[1], "grpc": {"address": address}}
        found = findings(run("--json", "--services", "tool", **settings))
    assert "port" not in found, "nothing is served over HTTP"
    assert found["grpc port"]["state"] == "problem"
    assert "the setting grpc.address names another" in found["grpc port"]["hint"]


def test_a_server_of_ours_over_grpc_is_known(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COPILOT_GRPC_SERVICES", "")
    with start_blocking_portal() as portal:
        runtime = CopilotRuntime(
            ScriptedAdapter(),
            settings=Settings.model_validate(
                {"threads": "memory", "grpc": {"services": ["tool"], "address": "127.0.0.1:0"}}
            ),
        )
        with portal.wrap_async_context_manager(runtime.running()) as server:
            assert server is not None
            address = server.address.removeprefix("grpc://")
            found = findings(run("--json", "--services", "tool", grpc={"address": address}))
    assert found["grpc port"]["text"] == f"a server of ours answers at {address}"


def test_the_address_of_the_command_line_is_looked_at(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.operation.doctor.machine._PATIENCE", 0.2)
    (tmp_path / "another.py").write_text(
        "from copilot_runtime import CopilotRuntime, DemoAdapter\n"
        "runtime = CopilotRuntime(DemoAdapter())\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        found = findings(run("--json", "another.py:runtime", "--port", port))
    assert f"Nobody can listen at 127.0.0.1:{port}" in found["port"]["text"]
    assert findings(run("--json", "--host", "0.0.0.0"))["access"]["state"] == "warning"


def test_a_database_and_its_clock_are_compared(run: Run, database: str) -> None:
    result = run("--json", threads=database, planner={"store": database})
    found = findings(result)
    assert result.exit_code == 0, result.stdout
    assert found["threads"]["text"].endswith("is made when it is needed")
    assert "seconds between this machine and the database" in found["clock"]["text"]
    assert found["carrier"]["text"] == "messages go by Postgres"


def test_the_model_is_asked_only_if_somebody_wants_it(run: Run) -> None:
    environ = {"COPILOT_ADAPTER_NAME": "demo"}
    text = findings(run("--json", environ=environ))["provider"]["text"]
    assert text == "DemoAdapter: it asks no service"
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
