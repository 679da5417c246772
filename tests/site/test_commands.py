"""The commands and settings of the documents exist, and the configuration of nginx works."""

import asyncio
import json
import re
import shlex
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import pytest
from starlette.testclient import TestClient
from websockets.asyncio.client import unix_connect
from websockets.typing import Subprotocol

from copilot_runtime import CopilotRuntime, DemoAdapter, Settings, __version__
from copilot_runtime.extensions.analyst.settings import AnalystSettings
from copilot_runtime.extensions.events.settings import EventSettings
from copilot_runtime.extensions.settings import load_settings
from copilot_runtime.extensions.webhooks.settings import WebhookSettings
from tests.documents import ROOT, Block, blocks
from tests.wire import test_nginx as proxy
from tests.wire.client import PATH, chat, user
from tests.wire.server import listening as serving
from tests.wire_agui.http import Browser, run_input

PROTOCOL = Subprotocol("graphql-transport-ws")


@pytest.mark.parametrize(
    "line",
    [
        part.strip()
        for block in blocks("sh")
        for line in block.code.replace("\\\n", " ").splitlines()
        for part in line.partition(" #")[0].split("&&")
    ],
)
def test_every_command_and_its_options_exist(line: str) -> None:
    program, *arguments = [word for word in shlex.split(line) if not re.match(r"[A-Z_]+=", word)]
    match program:
        case "make":
            assert f"\n{arguments[0]}:" in (ROOT / "Makefile").read_text()
        case "copilot-runtime" | ".venv/bin/copilot-runtime":
            _parse(arguments[: arguments.index(">")] if ">" in arguments else arguments)
        case "uvicorn":
            from uvicorn.main import main

            main.make_context("uvicorn", arguments)
        case "pip":
            wheel = f"dist/copilot_runtime-{__version__}-py3-none-any.whl"
            assert arguments in (["install", "."], ["install", ".[analyst]"], ["install", wheel])
        case "docker":
            assert arguments[0] in {"build", "run"}
            assert "copilot-runtime" in arguments
            assert (ROOT / "Dockerfile").is_file()
        case "cd":
            assert (ROOT / arguments[0]).is_dir()
        case "npm":
            files = (ROOT / "examples" / name / "package.json" for name in ("react-v1", "react-v2"))
            sets = [json.loads(file.read_text())["dependencies"].items() for file in files]
            packages = {tuple(part.rsplit("@", 1)) for part in arguments[1:]}
            assert arguments == ["run", "dev"] or any(packages <= found for found in sets)
        case ".":
            assert arguments == [".venv/bin/activate"]
        case "curl":
            # an ellipsis stands for what an answer before had
            assert _curl(arguments) in ((400, 404, 409) if "…" in line else (200, 201, 202))
        case _:
            raise AssertionError(f"Nobody checks the command {program!r}.")


def _curl(arguments: list[str]) -> int:
    """Send what curl would send, to a runtime with what the pages add to one; return the status."""
    parser = ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("-N", action="store_true")
    parser.add_argument("-H", action="append", default=[])
    parser.add_argument("-d")
    request = parser.parse_args(arguments)
    namespace: dict[str, Any] = {}
    exec(blocks("python", "extend/transport")[0].code, namespace)
    weather = sys.modules["weather"] = ModuleType("weather")
    exec(blocks("python", "learn/extensions")[0].code, vars(weather))
    here = {"base_url": "http://127.0.0.1:8000", "client": ("127.0.0.1", 50_000)}
    with TemporaryDirectory() as store:
        analyst = AnalystSettings(
            name="analyst", data=(str(ROOT / "examples/analyst/data/orders.parquet"),), store=store
        )
        app = CopilotRuntime(
            adapter=DemoAdapter(pace=0),
            transports=["agui", "graphql", namespace["AskTransport"]],
            extensions=[weather.WeatherExtension()] if "weather" in request.url else [],
            settings=Settings(
                threads="memory",
                events=EventSettings(store="memory"),
                webhooks=WebhookSettings(secret=f"whsec_{'A' * 32}", hosts=("127.0.0.1",)),
                analyst=analyst
                if "analyst" in request.url or "copilot/" in request.url
                else AnalystSettings(),
            ),
        ).app()
        app.add_api_route("/prices/{item}", _get_price)
        with TestClient(app, **here) as client:  # pyright: ignore[reportArgumentType]
            return client.request(
                "GET" if request.d is None else "POST",
                request.url.removeprefix("http://127.0.0.1:8000"),
                content=request.d,
                headers=dict(header.split(": ") for header in request.H),
            ).status_code


def _get_price(item: str) -> str:
    return item


def _parse(arguments: list[str]) -> None:
    """Let the command line read its arguments without running anything."""
    from typer.main import get_command

    from copilot_runtime.cli.main import cli

    command: Any = get_command(cli)
    name = ""
    while hasattr(command, "commands"):
        name, *arguments = arguments
        command = command.commands[name]
    command.make_context(name, arguments)


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_every_file_of_settings_is_valid(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "copilot.yml"
    file.write_text(block.code)
    variables = dict.fromkeys(re.findall(r"\$\{(\w+)\}", block.code), "any" * 11)
    variables["DATABASE_URL"] = "postgresql://db.example/copilot"
    variables["WEBHOOK_SECRET"] = f"whsec_{'A' * 32}"
    assert load_settings(file, variables) != Settings()


def write_endpoint() -> str:
    """Return the first configuration of the page about nginx, as a template."""
    block, _ = blocks("nginx", "run/nginx")
    location = block.code.replace("{", "{{").replace("}", "}}")
    location = location.replace("8000/graphql", f"{{port}}{PATH}")
    theirs = "location / {{ proxy_pass http://127.0.0.1:{port}; }}"
    assert theirs in proxy.CONFIGURATION
    return proxy.CONFIGURATION.replace(theirs, location)


def write_pages() -> str:
    """Return its second configuration, that for operators."""
    _, block = blocks("nginx", "run/nginx")
    server = block.code.replace("{", "{{").replace("}", "}}").replace(":8000", ":{port}")
    server = server.replace("listen 80", "listen unix:{folder}/nginx.sock")
    server = server.replace("allow 10.0.0.0/8", "allow unix:")
    start, _, _ = proxy.CONFIGURATION.partition("  server {{")
    return f"{start}{server}}}}}"


@pytest.mark.anyio
async def test_nginx_passes_chats_and_sockets_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "CONFIGURATION", write_endpoint())
    async with (
        serving(CopilotRuntime(adapter=DemoAdapter(pace=0))) as port,
        proxy.nginx(port) as listener,
    ):
        reader, writer = await asyncio.open_unix_connection(listener)
        writer.write(
            proxy.request(chat(user("think"))).replace(PATH.encode(), b"/api/copilotkit", 1)
        )
        answer = await reader.readuntil(b"-----")
        writer.close()
        await writer.wait_closed()
        async with unix_connect(
            str(listener), "ws://localhost/api/copilotkit", subprotocols=[PROTOCOL]
        ) as socket:
            await socket.send('{"type":"connection_init"}')
            greeting = await socket.recv()

    assert b"SuccessResponseStatus" in answer
    assert greeting == '{"type":"connection_ack"}'


@pytest.mark.anyio
async def test_nginx_passes_the_pages_of_operators_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "CONFIGURATION", write_pages())
    sections: dict[str, Any] = {
        "access": {"authenticate": ["api_keys"]},
        "api_keys": {"store": f"sqlite:{tmp_path}/access.db"},
    }
    settings = Settings(threads="memory", **sections)
    runtime = CopilotRuntime(adapter=DemoAdapter(pace=0), settings=settings)
    async with serving(runtime) as port, proxy.nginx(port) as listener:
        pages = [await fetch(listener, path) for path in ("/access", "/traces", "/health/ready")]

    assert [page.partition(b"\r\n")[0] for page in pages] == [b"HTTP/1.1 200 OK"] * 3


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("write", "base"),
    [(write_endpoint, "/api/copilotkit"), (write_pages, PATH)],
)
async def test_nginx_passes_a_request_on_that_is_as_large_as_the_runtime_takes(
    monkeypatch: pytest.MonkeyPatch, write: Callable[[], str], base: str
) -> None:
    monkeypatch.setattr(proxy, "CONFIGURATION", write())
    settings = Settings(threads="memory")
    body = json.dumps(run_input()).encode().ljust(settings.max_body_bytes)
    runtime = CopilotRuntime(adapter=DemoAdapter(pace=0), settings=settings)
    async with serving(runtime) as port, proxy.nginx(port) as listener:
        answer = await Browser(listener, base).ask("POST", "/agent/default/run", body)

    assert answer.types()[-1] == "RUN_FINISHED"


async def fetch(listener: Path, path: str) -> bytes:
    reader, writer = await asyncio.open_unix_connection(listener)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer
