"""No secret leaves a server by a log, an error, a trace, a page, a command or a backup."""

import io
import json
import logging
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from copilot_runtime import CopilotRuntime, OpenAIAdapter
from copilot_runtime.adapters import ADAPTERS
from copilot_runtime.agents.agui import AguiAgent
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api.registry import Registry
from copilot_runtime.cli.main import cli
from copilot_runtime.extensions.a2a.client.agent import A2aAgent
from copilot_runtime.extensions.frameworks.langgraph.agent import LangGraphAgent
from copilot_runtime.extensions.mcp.client.source import McpServer
from copilot_runtime.extensions.settings import load_settings
from copilot_runtime.telemetry.logs import build_formatter
from copilot_runtime.testing import ScriptedAdapter, call, say
from tests.wire_agui.http import run_input

_CANARY = "canary"


class Canaries:
    """Secrets by their place, each of which is found again wherever it is printed."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}

    def __getitem__(self, place: str) -> str:
        return self.places.setdefault(
            place, f"{_CANARY}-{len(self.places):02}-has-32-bytes-or-more-of-them"
        )

    def list_found(self, output: str) -> list[str]:
        """Return the places whose secrets an output has, also of one that is cut off."""
        return [place for place, secret in self.places.items() if secret[:10] in output]


class _Echo(BaseHTTPRequestHandler):
    """A service that refuses every request, with all of the request in its words."""

    def do_POST(self) -> None:
        size = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(size).decode(errors="replace") if size < 10_000 else ""
        words = f"Wrong key in {self.path} {dict(self.headers.items())} {body}"
        answer = json.dumps({"error": {"message": words}, "detail": words}).encode()
        self.send_response(401)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST  # noqa: N815 - http.server's name

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""


@pytest.fixture
def echo() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Echo) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Return all log lines at every level, in each of our formats and in that of an application."""
    text = io.StringIO()
    handlers = [logging.StreamHandler(text) for _ in range(3)]
    handlers[0].setFormatter(build_formatter("json"))
    handlers[1].setFormatter(build_formatter("text"))
    former = logging.getLogRecordFactory()
    monkeypatch.setattr(logging.root, "level", logging.DEBUG)
    for handler in handlers:
        logging.root.addHandler(handler)
    yield text
    for handler in handlers:
        logging.root.removeHandler(handler)
    logging.setLogRecordFactory(former)


def _write_settings(folder: Path, host: str, secrets: Canaries) -> Path:
    def locate(place: str, path: str = "") -> str:
        user = f"u:{secrets[f'{place} password']}"
        return f"http://{user}@{host}{path}?api_key={secrets[f'{place} query']}"

    header = {"authorization": f"Bearer {secrets['tool header']}", "x-own": secrets["tool x-own"]}
    tool = {
        "description": "Look it up.",
        "endpoint": {
            "http": {
                "url": f"http://{host}/tool",
                "headers": header,
                "query": {"token": secrets["tool query"], "k": "${secret:TOOL_SECRET}"},
            }
        },
    }
    (folder / "tools.yml").write_text(json.dumps({"look_up": tool}))
    settings = {
        "threads": "sqlite:threads.db",
        "tools": "tools.yml",
        "secret": secrets["secret"],
        "cloud_base_url": locate("guardrails"),
        "adapter": {
            "name": "openai",
            "options": {
                "base_url": f"http://{host}/v1?key={secrets['adapter query']}",
                "api_key": secrets["adapter key"],
                "headers": {"x-gateway": secrets["adapter header"]},
                "max_retries": 0,
            },
        },
        "jwt": {"secret": secrets["jwt secret"], "algorithms": ["HS256"]},
        "service_tokens": {"secrets": [secrets["service token"], secrets["old service token"]]},
        "audit": {"file": "audit.jsonl", "key": secrets["audit key"]},
        "mcp": {"servers": [locate("mcp", "/mcp")]},
        "mcp_apps": {
            "servers": [
                {
                    "url": f"http://{host}/app?key={secrets['mcp app query']}",
                    "headers": {"x-app": secrets["mcp app header"]},
                }
            ]
        },
        "telemetry": {
            "store": "sqlite:traces.db",
            "content": "local",
            "endpoint": f"http://{host}",
            "headers": {"x-otlp": secrets["telemetry header"]},
            "metrics_token": secrets["metrics token"],
            "receive_token": secrets["receive token"],
            "operators": ["ann"],
        },
        "knowledge": {
            "storage": "memory",
            "embedder": "openai",
            "embedder_options": {"api_key": secrets["embedder key"], "base_url": f"http://{host}"},
        },
    }
    (folder / "copilot.yml").write_text(json.dumps(settings))
    return folder / "copilot.yml"


def _list_variables(secrets: Canaries) -> Mapping[str, str]:
    names = (
        *("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "MISTRAL_API_KEY"),
        *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK"),
        *("AZURE_OPENAI_API_KEY", "TOOL_SECRET", "PGPASSWORD"),
    )
    return {
        **{name: secrets[name] for name in names},
        "OTEL_EXPORTER_OTLP_HEADERS": f"api-key={secrets['otlp variable']}",
    }


def _build_runtime(host: str, secrets: Canaries) -> CopilotRuntime:
    def make_headers(place: str) -> Mapping[str, str]:
        return {"authorization": f"Bearer {secrets[place]}", "x-team": secrets[f"{place} x-team"]}

    def fail() -> str:
        """Fail with a secret in the words of an exception that is none of ours."""
        raise RuntimeError(f"no answer from https://u:{secrets['exception']}@db/")

    settings = load_settings()
    registry = Registry("copilot_runtime.adapters", ADAPTERS)
    return CopilotRuntime(
        adapter=registry["openai"](**settings.adapter.options),
        settings=settings,
        authenticate=lambda _: "ann",
        actions=[fail],
        mcp_allowed=[f"http://{host}/mcp"],
        mcp_servers=[McpServer(f"http://{host}/own", headers=make_headers("mcp header"))],
        agents={
            "ag-ui": AguiAgent(
                f"http://{host}/agent?key={secrets['agent query']}", headers=make_headers("agent")
            ),
            "langgraph": LangGraphAgent(
                f"http://{host}", graph="g", api_key=secrets["langgraph key"]
            ),
            "a2a": A2aAgent(f"http://{host}/a2a", headers=make_headers("a2a agent")),
            "away": AguiAgent(
                f"http://u:{secrets['away']}@127.0.0.1:1/", headers=make_headers("away header")
            ),
            "model": DirectAgent(
                OpenAIAdapter("m", api_key=secrets["own key"], base_url=f"http://{host}")
            ),
            "caller": DirectAgent(
                ScriptedAdapter(*([*call("fail"), *call("look_up")], say("Oh.")))
            ),
        },
    )


def _converse(client: TestClient, secrets: Canaries, host: str) -> Iterator[str]:
    headers = {
        "authorization": f"Bearer {secrets['authorization']}",
        "cookie": f"session={secrets['cookie']}",
        "x-auth-token": secrets["user's header"],
        "x-copilotcloud-public-api-key": secrets["public key"],
    }
    properties = {
        "authorization": secrets["property"],
        "mcpServers": [{"endpoint": f"http://{host}/mcp", "apiKey": secrets["page's key"]}],
    }
    for agent in ("default", "ag-ui", "langgraph", "a2a", "away", "model", "caller"):
        for thread, forwarded in (("plain", {}), ("page", properties)):
            body = run_input(thread=f"{agent}-{thread}", forwardedProps=forwarded)
            answer = client.post(f"/graphql/agent/{agent}/run", json=body, headers=headers)
            yield answer.text
    for trace in client.get("/graphql/traces").json()["traces"]:
        yield client.get(f"/graphql/traces/{trace['trace_id']}").text
    for path in (
        "/",
        "/graphql/info",
        "/health/ready",
        "/health/live",
        "/traces",
        "/graphql/tools",
    ):
        yield client.get(path).text
    yield client.get(f"/graphql/traces?key={secrets['url']}").text


def test_no_secret_is_shown_whatever_succeeds_or_fails(
    echo: str, output: io.StringIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COPILOT_THREADS", raising=False)
    secrets = Canaries()
    for name, value in _list_variables(secrets).items():
        monkeypatch.setenv(name, value)
    _write_settings(tmp_path, echo, secrets)

    with TestClient(_build_runtime(echo, secrets).app()) as client:
        shown = [*_converse(client, secrets, echo)]
    logging.getLogger("uvicorn.access").info(
        '%s - "%s %s HTTP/%s" %d', "1.2.3.4", "GET", f"/?key={secrets['url']}", "1.1", 200
    )
    for line in ("settings", "doctor --call", "develop tools list", "operate backup b.tar"):
        result = CliRunner().invoke(cli, line.split())
        shown.append(f"{result.output} {result.stderr} {result.exception!r}")
    shown.append(output.getvalue())
    stored = {
        path.name: path.read_bytes().decode(errors="replace")
        for path in tmp_path.rglob("*")
        if path.is_file() and path.name not in ("copilot.yml", "tools.yml")
    }

    assert len(secrets.places) >= 40
    assert output.getvalue().count("\n") > 100
    found = {name: secrets.list_found(text) for name, text in stored.items()}
    found |= {str(number): secrets.list_found(text) for number, text in enumerate(shown)}
    assert {place: names for place, names in found.items() if names} == {}
