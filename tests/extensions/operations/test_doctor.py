"""The doctor names what is wrong and how to mend it, changes nothing, and tells no secret."""

import asyncio
import json
import socket
import sqlite3
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from starlette.types import Receive, Scope, Send
from typer.testing import CliRunner, Result

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.api.registry import explain_missing
from copilot_runtime.base.errors import MissingPackage
from copilot_runtime.cli.main import cli
from copilot_runtime.extensions.access.audit.verify import Verification, verify
from copilot_runtime.extensions.grpc.server import GrpcServer
from copilot_runtime.extensions.operations.doctor import upstream
from copilot_runtime.extensions.operations.doctor.server import examine_server
from copilot_runtime.testing import ScriptedAdapter
from tests.extensions.access.credentials import make_key, providing, write_jwks
from tests.extensions.cluster.redis_server import redis_server
from tests.extensions.generative_ui.rogue import serve_rogue
from tests.extensions.operations.stores import build_settings
from tests.in_one_test import in_one_test
from tests.wire_agui.server import serving

Run = Callable[..., Result]
POSTGRES = "postgresql://app@127.0.0.1:1/app"


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
    assert "Authentication is disabled" in result.stdout
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


def test_a_server_that_is_starting_is_asked_again(run: Run) -> None:
    """It has its port before it answers: here it answers the second who asks."""

    def answer(listener: socket.socket) -> None:
        listener.accept()[0].close()
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=answer, args=(listener,))
        thread.start()
        port = listener.getsockname()[1]
        found = findings(run("--json", "--port", str(port)))
        thread.join()

    assert found["port"]["text"] == f"a server of ours answers at 127.0.0.1:{port}"


def test_a_database_that_is_away_is_one_problem(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copilot_runtime.database.postgres.pool._PATIENCE", 0)
    url = "postgresql://app@127.0.0.1:1/app"
    store = {"store": url}
    rows = json.loads(
        run(
            "--json",
            threads=url,
            planner=store,
            api_keys=store,
            access={"authenticate": ["api_keys"]},
        ).stdout
    )
    [wrong] = [row for row in rows if row["state"] == "problem"]

    start, end = "PostgreSQL (127.0.0.1:1/app) cannot be used: ", " The same goes for plans, keys."
    assert wrong["name"] == "threads"
    assert (wrong["text"][: len(start)], wrong["text"][-len(end) :]) == (start, end)
    assert ".." not in wrong["text"]
    assert wrong["hint"] == "See whether it runs, and whether address, user and password are right."


def test_each_thing_that_is_wrong_has_a_way_out(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.operations.doctor.machine._STARTING", 0)
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
    assert "another program" in found["threads"]["text"]
    assert "OPENAI_API_KEY" in found["provider"]["hint"] + found["provider"]["text"]


def test_an_audit_log_that_takes_long_holds_up_no_other_check(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "audit.jsonl").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        port = listener.getsockname()[1]

        def verify_late(path: Path, key: str) -> Verification:
            listener.accept()[0].close()  # once another check has gone on
            return verify(path, key)

        monkeypatch.setattr("copilot_runtime.extensions.access.audit.verify.verify", verify_late)
        mcp = {"servers": [f"http://127.0.0.1:{port}"]}
        found = findings(run("--json", audit={"file": "audit.jsonl"}, mcp=mcp))

    assert (found["audit log"]["state"], found["mcp server"]["state"]) == ("warning", "good")
    assert "There is no audit.key" in found["audit log"]["text"]


def test_tools_that_are_left_out_are_named_with_their_servers_and_reasons(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "left_out.py").write_text(
        "import os\n"
        "from copilot_runtime import CopilotRuntime, McpServer, OpenAIAdapter\n"
        "shop = os.environ['SHOP']\n"
        "runtime = CopilotRuntime(OpenAIAdapter('m', api_key='k', base_url=shop),\n"
        "    mcp_servers=[McpServer(shop, name='shop')], authenticate=lambda request: 'ann')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    lost = {"name": "lost", "inputSchema": {"$ref": "#/$defs/Lost"}}
    look = {"name": "look", "inputSchema": {"type": "object"}}
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serve_rogue()) as rogue,
    ):
        rogue.answers["tools/list"] = lambda _: {"tools": [{"name": "odd"}, lost, look]}
        result = run("left_out:runtime", "--json", "--call", environ={"SHOP": rogue.url})

    rows = json.loads(result.stdout)
    assert [(row["state"], row["text"]) for row in rows if row["name"] == "tools"] == [
        ("good", "2 from functions, files and servers"),
        ("warning", "MCP server 'shop': the tool 'odd' is left out: inputSchema: Field required"),
        (
            "warning",
            "The tool 'lost' of 'shop' is not offered to OpenAI: its schema refers to "
            "'#/$defs/Lost', which it does not contain",
        ),
    ]


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


def test_keys_of_tokens_are_read_from_a_file(run: Run, tmp_path: Path) -> None:
    settings = {"access": {"authenticate": ["jwt"]}, "jwt": {"jwks": "keys.json"}}
    missing = run("--json", **settings)
    path = write_jwks(tmp_path / "keys.json", make_key("k1"), make_key("k2", "ES256"))
    found = findings(run("--json", **settings))

    assert missing.exit_code == 1
    assert findings(missing)["jwt keys"]["text"] == (
        f"Tokens cannot be verified: {path}: No such file or directory."
    )
    assert found["jwt keys"]["text"] == f"2 keys verify tokens, from {path}"


def test_keys_of_tokens_are_read_from_an_issuer_that_may_be_silent(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = {"authenticate": ["jwt"]}
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(providing(make_key("k1"))) as provider,
    ):
        found = findings(run("--json", access=access, jwt={"issuer": provider.url}))
        wrong = findings(run("--json", access=access, jwt={"issuer": f"{provider.url}/"}))
    monkeypatch.setattr(upstream, "_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        silent = findings(run("--json", access=access, jwt={"issuer": url}))

    assert found["jwt keys"]["text"] == f"1 key verifies tokens, from {provider.url}"
    assert "set jwt.issuer to what it says" in wrong["jwt keys"]["text"]
    assert silent["jwt keys"]["text"] == f"{url} does not answer within 0.2 seconds."


def test_settings_of_a_way_to_sign_in_that_is_not_used_are_a_problem_if_nobody_has_to(
    run: Run,
) -> None:
    jwt = {"issuer": "https://login.example.com", "audience": ["copilot"]}
    [_, open_to_all] = find_access(run("--json", jwt=jwt))
    [_, beside] = find_access(run("--json", jwt=jwt, access={"authenticate": ["api_keys"]}))

    assert open_to_all == {
        "name": "access",
        "state": "problem",
        "text": "Unused settings jwt.issuer, jwt.audience: access.authenticate does not name jwt.",
        "hint": "Set access.authenticate: [jwt].",
    }
    assert beside["state"] == "warning"
    assert beside["hint"] == "Set access.authenticate: [api_keys, jwt]."


def test_a_server_behind_a_proxy_is_one_that_others_reach(run: Run) -> None:
    proxy = {"addresses": ["127.0.0.1"]}
    [found] = find_access(run("--json", allowed_hosts=["app.example.com"], proxy=proxy))

    assert found["state"] == "warning"
    assert found["text"].endswith("by a proxy: see allowed_hosts and proxy.addresses.")


def find_access(result: Result) -> list[dict[str, str]]:
    return [row for row in json.loads(result.stdout) if row["name"] == "access"]


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


@in_one_test("mark", ["/", "#", "?", "[", "@"])
def test_no_part_of_a_password_is_shown_that_breaks_its_url(run: Run, mark: str) -> None:
    result = run("--json", limits={"store": f"redis://:S3CR{mark}ETpw@127.0.0.1"})
    assert result.exit_code == 1
    assert "'limits.store'" in findings(result)["configuration"]["text"]
    assert "percent-encoded" in findings(result)["configuration"]["text"]
    assert not any(part in result.stdout for part in ("S3CR", "ETpw"))


def test_careless_settings_are_worth_a_look(run: Run) -> None:
    assert findings(run("--json", forward_headers=["*"]))["headers"]["state"] == "warning"
    assert findings(run("--json"))["settings"]["text"] == "none of them is careless"


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


def test_a_store_of_limits_for_days_that_keeps_nothing_is_a_warning(run: Run) -> None:
    with redis_server() as redis, redis.running():
        limits = {"store": redis.url, "requests_per_user": ["9/second", "5000/hour"]}
        hour = findings(run("--json", limits=limits))["limits"]
        day = findings(run("--json", limits=limits | {"dollars_per_key": ["2/day"]}))["limits"]

    assert (hour["state"], day["state"]) == ("good", "warning")
    assert "appendonly yes" in day["hint"]


def test_an_address_of_grpc_that_another_program_has_is_found(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPILOT_GRPC_SERVICES", "")
    monkeypatch.setattr("copilot_runtime.extensions.operations.doctor.machine._PATIENCE", 0.2)
    monkeypatch.setattr("copilot_runtime.extensions.operations.doctor.machine._STARTING", 0)
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
        with portal.wrap_async_context_manager(runtime.running()):
            address = runtime.get(GrpcServer).address.removeprefix("grpc://")
            found = findings(run("--json", "--services", "tool", grpc={"address": address}))
    assert found["grpc port"]["text"] == f"a server of ours answers at {address}"


def test_the_address_of_the_command_line_is_looked_at(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.operations.doctor.machine._PATIENCE", 0.2)
    monkeypatch.setattr("copilot_runtime.extensions.operations.doctor.machine._STARTING", 0)
    (tmp_path / "another.py").write_text(
        "from copilot_runtime import CopilotRuntime, DemoAdapter\n"
        "runtime = CopilotRuntime(DemoAdapter())\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        found = findings(run("--json", "another.py:runtime", "--port", port))
    assert f"Cannot listen at 127.0.0.1:{port}" in found["port"]["text"]
    assert findings(run("--json", "--host", "0.0.0.0"))["access"]["state"] == "warning"


@in_one_test(("audience", "state"), [([], "warning"), (["copilot"], "good")])
def test_tokens_that_are_meant_for_others_are_worth_a_warning(
    run: Run, audience: list[str], state: str
) -> None:
    jwt = {"jwks": "keys.json", "audience": audience}
    found = findings(run("--json", access={"authenticate": ["jwt"]}, jwt=jwt))["access"]

    assert (found["state"], "other applications" in found["text"]) == (state, not audience)


def test_a_database_and_its_clock_are_compared(run: Run, database: str) -> None:
    result = run("--json", threads=database, planner={"store": database})
    found = findings(result)
    assert result.exit_code == 0, result.stdout
    assert found["threads"]["text"].endswith("is made when it is needed")
    assert "seconds between this machine and the database" in found["clock"]["text"]
    assert found["carrier"]["text"] == "messages go by Postgres"


def test_a_database_that_cannot_be_written_is_one_problem(run: Run, database: str) -> None:
    url = f"{database}&default_transaction_read_only=on"
    access = {"authenticate": ["api_keys"]}
    found = json.loads(run("--json", threads=url, api_keys={"store": url}, access=access).stdout)
    [wrong] = [row for row in found if row["state"] == "problem"]

    assert wrong["name"] == "threads"
    assert wrong["text"].endswith("is read-only: nothing can be stored. The same goes for keys.")
    assert "default_transaction_read_only" in wrong["hint"]


def test_the_model_is_asked_only_if_somebody_wants_it(run: Run) -> None:
    environ = {"COPILOT_ADAPTER_NAME": "demo"}
    text = findings(run("--json", environ=environ))["provider"]["text"]
    assert text == "the rule-based demo, which needs no model"
    asked = findings(run("--json", "--call", environ=environ))["provider"]
    assert "answered in" in asked["text"]


def test_who_needs_no_provider_is_told_so(run: Run, tmp_path: Path) -> None:
    environ = {"COPILOT_ADAPTER_NAME": "openai"}  # and there is no key
    services = findings(run("--json", "--services", "trace,tool", environ=environ))["provider"]
    assert services["text"] == "not needed: none of these services asks a model"
    (tmp_path / "desk.py").write_text(
        "from copilot_runtime import CopilotRuntime, DemoAdapter\n"
        "from copilot_runtime.agents.direct import DirectAgent\n"
        "runtime = CopilotRuntime(agents={'desk': DirectAgent(DemoAdapter())})\n"
    )
    agents = findings(run("--json", "desk.py:runtime"))["provider"]
    assert agents["text"] == "not needed: agents answer, and the runtime has no model of its own"


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


@in_one_test(
    ("settings", "names"),
    [
        ({"workers": 3, "limits": {"runs_per_user": ["3/minute"]}}, {"limits"}),
        ({"workers": 3, "planner": {"name": "p"}}, set()),
        (
            {
                "workers": 3,
                "limits": {"runs_per_user": ["3/minute"], "store": "redis://127.0.0.1:1"},
            },
            set(),
        ),
        ({"limits": {"runs_per_user": ["3/minute"]}}, set()),
        ({"threads": POSTGRES, "limits": {"tokens_per_key": ["9/day"]}}, {"limits"}),
        ({"threads": POSTGRES, "planner": {"name": "p"}}, {"plans"}),
        ({"threads": POSTGRES, "planner": {"store": "sqlite:p.db"}}, set()),
        ({"threads": POSTGRES, "planner": {"name": "p", "store": POSTGRES}}, set()),
        ({"threads": POSTGRES}, set()),
    ],
)
def test_what_each_process_would_have_for_itself_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], names: set[str]
) -> None:
    monkeypatch.setattr("copilot_runtime.database.postgres.pool._PATIENCE", 0)
    rows = json.loads(run("--json", **settings).stdout)
    found = [row for row in rows if row["state"] == "warning" and "store to" in row["hint"]]

    assert {row["name"] for row in found} == names
    if "limits" in names:
        assert "limits.store to redis://" in found[0]["hint"]
    if settings.get("workers") and names:
        assert found[0]["text"] == (
            "Each of 3 workers counts for itself, so 3 times as much gets through: "
            "limits.runs_per_user."
        )


def test_a_missing_package_is_installed_from_where_this_one_came(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    monkeypatch.setattr(
        "copilot_runtime.api.registry.install_command", "pip install '/src[{}]'".format
    )
    found = findings(run("--json", access={"authenticate": ["jwt"]}, jwt={"issuer": "https://a.b"}))

    assert found["configuration"]["text"].endswith("Install it with: pip install '/src[auth]'")


@in_one_test(
    ("package", "settings", "said"),
    [
        ("duckdb", {"analyst": {"name": "data"}}, "The analyst needs the package 'duckdb'."),
        (
            "faiss",
            {"knowledge": {"storage": "local:pages", "vector_engine": "faiss"}},
            "The vector engine 'faiss' needs the package 'faiss-cpu'.",
        ),
    ],
)
def test_what_settings_need_is_looked_for_by_the_doctor_and_before_a_server_starts(
    run: Run, monkeypatch: pytest.MonkeyPatch, package: str, settings: Any, said: str
) -> None:
    with monkeypatch.context() as without:
        without.setitem(sys.modules, package, None)
        found = findings(run("--json", **settings))["configuration"]
        refused = CliRunner().invoke(cli, ["serve"])

    assert isinstance(refused.exception, MissingPackage)
    assert found["state"] == "problem"
    assert found["text"] == explain_missing(refused.exception)
    assert found["text"].startswith(f"{said} Install it with: pip install ")


@pytest.mark.anyio
async def test_a_running_server_gets_the_first_requests_of_a_page() -> None:
    runtime = CopilotRuntime(ScriptedAdapter(), settings=Settings(threads="memory"))
    async with serving(runtime.app()) as port:
        url = f"http://127.0.0.1:{port}"
        right, wrong = await examine_server(f"{url}/graphql"), await examine_server(f"{url}/x")

    assert [it.state for it in right] == ["good", "good", "good"]
    assert [it.state for it in wrong] == ["problem", "problem", "warning"]


@pytest.mark.anyio
async def test_a_running_server_that_answers_without_an_end_is_given_up() -> None:
    async def drip(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b" ", "more_body": True})
            await asyncio.sleep(0.01)

    async with serving(drip) as port:
        (found,) = await examine_server(f"http://127.0.0.1:{port}", seconds=0.5)

    assert (found.state, found.text) == ("problem", "It took longer than 0.5 seconds.")
