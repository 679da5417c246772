"""Receivers that are slow, redirect, ask for silence or leave: no answer of a chat changes."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socket import create_server, socket
from time import time
from typing import Any

import pytest
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.api.events import RunFinished
from copilot_runtime.extensions.tracing.build import build_telemetry
from copilot_runtime.extensions.tracing.options import TelemetryOptions
from copilot_runtime.extensions.tracing.otel import delivery, mirror, session
from copilot_runtime.extensions.tracing.settings import TelemetrySettings
from copilot_runtime.telemetry import Telemetry, semconv
from copilot_runtime.testing import ScriptedAdapter, say
from tests.extensions.tracing.otel.receivers import serve_http
from tests.extensions.tracing.otel.test_export import answer_500
from tests.in_one_test import in_one_test
from tests.runs import run_input, runtime_of, told

pytestmark = pytest.mark.anyio


CHAT = {semconv.OPERATION_NAME: semconv.CHAT}


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "PATIENCE", 0.2)
    monkeypatch.setattr(delivery, "PATIENCE", 0.2)


@contextmanager
def accept(*pieces: bytes) -> Generator[str]:
    """Serve whoever connects with the same bytes, which come without an end, and keep them."""
    kept: list[socket] = []

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            kept.append(client)
            for piece in pieces:
                client.sendall(piece)

    with create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(2)
        thread.join()
    for client in kept:
        client.close()


def export(endpoint: str, **options: Any) -> Telemetry:
    """Return telemetry that sends each span at once."""
    return build_telemetry(
        TelemetryOptions(
            endpoint=endpoint, signals=("traces",), export_interval=0.01, max_queue=10, **options
        )
    )


def read_dropped(telemetry: Telemetry) -> float:
    metrics = telemetry.metrics
    assert metrics is not None
    families = {family.metric.name: family.points[0].value for family in metrics.collect()}
    return families.get(semconv.TELEMETRY_DROPPED, 0)


@in_one_test("exporter", ["otlp-http", "otlp-grpc"])
@in_one_test(
    "pieces", [(), (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf",), (b"HTTP/1.1 200",)]
)
async def test_who_never_answers_holds_up_neither_runs_nor_the_end(
    pieces: tuple[bytes, ...], exporter: str
) -> None:
    with accept(*pieces) as url:  # until the block ends, nobody gets an answer
        telemetry = export(url, exporters=(exporter,))
        runtime = runtime_of(*[say("Hello.")] * 40, telemetry=telemetry)
        answers = [[*await told(runtime, run_input(f"r{at}"))] for at in range(40)]
        await telemetry.flush()
        await telemetry.aclose()
    assert {answer[-1] for answer in answers} == {RunFinished()}
    assert {len(answer) for answer in answers} == {4}
    assert read_dropped(telemetry) > 0  # two spans a run, and room for ten


async def test_an_answer_that_comes_byte_by_byte_is_left_and_its_status_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "_PATIENCE", -1.0)
    with accept(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nh") as url:
        telemetry = export(url)
        for _ in range(2):  # the second needs a connection of its own
            telemetry.start_span("chat", attributes=CHAT).end()
            await telemetry.flush()
        await telemetry.aclose()
    assert read_dropped(telemetry) == 0


def answer_with(status: int, **headers: str) -> Any:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("content-length", "0")
        request.end_headers()

    return answer


@in_one_test("status", [301, 302, 307, 308])
async def test_a_redirect_is_no_success_and_is_not_followed(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    with serve_http() as other:
        place = f"{other.url}/v1/traces?key=secret"
        with serve_http(answer_with(status, location=place)) as inbox:
            telemetry = export(inbox.url, headers={"x-key": "secret"})
            telemetry.start_span("chat", attributes=CHAT).end()
            await telemetry.aclose()
    assert other.paths == []
    assert read_dropped(telemetry) == 1
    (line,) = [it.getMessage() for it in caplog.records if it.levelname == "WARNING"]
    assert line.endswith(f"{status}, it redirects to {other.url}/v1/traces")


@in_one_test(
    "wait", ["120", "1e9", formatdate(time() + 3600, usegmt=True)], ids=["seconds", "long", "time"]
)
@in_one_test("status", [429, 503])
async def test_who_asks_for_silence_gets_it(status: int, wait: str) -> None:
    with serve_http(answer_with(status, retry_after=wait)) as inbox:
        telemetry = export(inbox.url)
        for _ in range(3):
            telemetry.start_span("chat", attributes=CHAT).end()
            await telemetry.flush()
        await telemetry.aclose()
    assert len(inbox.paths) == 1
    assert read_dropped(telemetry) == 3


@in_one_test("wait", ["soon", "nan", "-5", "Sat, 22 Nov 2025 00:00:00 -0000"])
async def test_a_time_that_is_none_is_not_waited_for(wait: str) -> None:
    answers = iter([answer_with(503, retry_after=wait), answer_with(200)])
    with serve_http(lambda request: next(answers)(request)) as inbox:
        telemetry = export(inbox.url)
        telemetry.start_span("chat", attributes=CHAT).end()
        await telemetry.flush()
        await telemetry.aclose()
    assert inbox.paths


READY = {"status": "ready", "threads": "reachable"}


def ask(client: TestClient) -> Any:
    answer = client.get("/health/ready")
    assert answer.status_code == 200
    return answer.json()


def end_chat(telemetry: Telemetry) -> None:
    telemetry.start_span("chat", attributes={semconv.OPERATION_NAME: semconv.CHAT}).end()


async def test_a_store_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    telemetry = TelemetrySettings(store=f"sqlite:{tmp_path}/file/traces.db")
    settings = Settings(threads="memory", telemetry=telemetry)
    runtime = CopilotRuntime(ScriptedAdapter(), settings=settings)
    client = TestClient(runtime.app())
    assert ask(client) == READY

    end_chat(runtime.telemetry)
    await runtime.telemetry.flush()
    assert ask(client) == {**READY, "failing": ["traces"]}
    await runtime.telemetry.aclose()


async def test_an_exporter_whose_receiver_fails_is_named() -> None:
    with serve_http(answer_500) as inbox:
        telemetry = build_telemetry(TelemetryOptions(endpoint=inbox.url, signals=("traces",)))
        settings = Settings(threads="memory")
        client = TestClient(
            CopilotRuntime(ScriptedAdapter(), settings=settings, telemetry=telemetry).app()
        )
        end_chat(telemetry)
        assert ask(client) == READY
        await telemetry.flush()
        assert ask(client) == {**READY, "failing": ["exporter"]}
        await telemetry.aclose()
