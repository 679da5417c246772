"""What runs the programs of the documents: a folder of their own, and services on loopback."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import pytest

from copilot_runtime.transports.graphql.schema import core_schema
from tests.documents import ROOT, Block

Names = dict[str, Any]
Run = Callable[[Block], Names]


class Services(BaseHTTPRequestHandler):
    """The services that the programs call.

    A model with OpenAI's API, which repeats the last message or makes the call it names; at
    /agent an AG-UI agent, and at /weather one of A2A, which answer with their keys; at /joke a
    chain served by LangServe.
    """

    def do_GET(self) -> None:
        if self.path == "/weather/.well-known/agent-card.json":
            url = f"http://{self.headers['host']}/weather"
            interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            self._send_json({"name": "Weather", "supportedInterfaces": [interface]})
            return
        assert self.path == "/joke/input_schema"
        self._send_json({"type": "object", "properties": {"topic": {"type": "string"}}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        match self.path:
            case "/agent":
                self._send_agui(body)
            case "/weather":
                parts = [{"text": f"My key: {self.headers['authorization']}"}]
                message = {"messageId": "a1", "role": "ROLE_AGENT", "parts": parts}
                result = {"message": message}
                self._send_json({"jsonrpc": "2.0", "id": body["id"], "result": result})
            case "/joke/invoke":
                self._send_json({"output": f"A {body['input']['topic']} walks into a bar."})
            case _:
                self._send_completion(body)

    def _send_completion(self, body: Any) -> None:
        text = body["messages"][-1]["content"]
        tools = [tool["function"]["name"] for tool in body.get("tools", ())]
        delta: dict[str, Any] = {"content": f"You said: {text}"}
        if text.startswith("call ") and (words := text.split(" ", 2))[1] in tools:
            function = {"name": words[1], "arguments": words[2]}
            delta = {"tool_calls": [{"index": 0, "id": "call-1", "function": function}]}
        choices = ({"delta": delta}, {"delta": {}, "finish_reason": "stop"})
        chunks = [{"id": "chatcmpl-1", "choices": [{"index": 0, **each}]} for each in choices]
        self._send_events([*map(json.dumps, chunks), "[DONE]"])

    def _send_agui(self, body: Any) -> None:
        ids = {"threadId": body["threadId"], "runId": body["runId"]}
        text = {"messageId": "a1", "delta": f"My key: {self.headers['authorization']}"}
        events = (
            {"type": "RUN_STARTED", **ids},
            {"type": "TEXT_MESSAGE_CHUNK", **text},
            {"type": "RUN_FINISHED", **ids},
        )
        self._send_events(map(json.dumps, events))

    def _send_events(self, events: Any) -> None:
        self._send_head("text/event-stream")
        for event in events:
            self.wfile.write(f"data: {event}\n\n".encode())

    def _send_json(self, value: Any) -> None:
        self._send_head("application/json")
        self.wfile.write(json.dumps(value).encode())

    def _send_head(self, content_type: str) -> None:
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Generator[str, None, None]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def services() -> Iterator[str]:
    with listening(Services) as url:
        yield url


@pytest.fixture
def run(services: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return what executes a program, in a folder of its own, with the services on loopback.

    A program that opens with the name of its file, such as `# weather.py`, can import itself.
    """
    for name in os.environ:
        if name.startswith(("COPILOT_", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{services}/v1")
    monkeypatch.setenv("SERVICE_SECRET", "of the tests, not of the documents")
    monkeypatch.setenv("WEBHOOK_SECRET", f"whsec_{'A' * 32}")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # a client of boto3 looks for a role
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "hours.md").write_text("# Hours\n\nThe library opens at nine.\n")

    def execute(block: Block) -> Names:
        code = block.code
        for address in ("http://localhost:11434", "http://localhost:9000"):
            code = code.replace(address, services)
        file = re.match(r"# (\w+)\.py\n", code)
        module = ModuleType(file[1] if file else "document")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        core_schema.cache_clear()  # it may have the types of a module of this name
        names: Names = vars(module)
        exec(compile("\n" * (block.line - 1) + code, block.page, "exec"), names)
        return names

    return execute


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as `make docs-site` does: every warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    done = subprocess.run(
        [*command, "--site-dir", str(folder)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder
