"""Readiness names what of telemetry does not work. Answers do not need it: the server is ready."""

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.extensions.tracing.build import TelemetryOptions, build_telemetry
from copilot_runtime.extensions.tracing.settings import TelemetrySettings
from copilot_runtime.telemetry import Telemetry, semconv
from copilot_runtime.testing import ScriptedAdapter
from tests.extensions.tracing.otel.receivers import serve_http
from tests.extensions.tracing.otel.test_export import answer_500

pytestmark = pytest.mark.anyio

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
