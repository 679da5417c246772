"""What takes, keeps and sends spans makes none of its own: a trace would never end."""

from pathlib import Path

import pytest

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.extensions.tracing.build import build_telemetry
from copilot_runtime.extensions.tracing.options import TelemetryOptions
from copilot_runtime.extensions.tracing.store.store import TraceStore
from copilot_runtime.telemetry import LocalTelemetry
from copilot_runtime.testing import Client, say
from tests.extensions.tracing.otel.receivers import serve_http
from tests.in_one_test import in_one_test
from tests.wire_agui.server import PATH, serving

pytestmark = pytest.mark.anyio


@in_one_test("store", ["memory", "sqlite:{folder}/traces.db", "jsonl:{folder}"])
async def test_a_server_that_takes_spans_keeps_them_and_makes_none(
    store: str, tmp_path: Path
) -> None:
    with serve_http() as inbox:
        here = build_telemetry(
            TelemetryOptions(store=store.format(folder=tmp_path), endpoint=inbox.url)
        )
        receiver = CopilotRuntime(
            ScriptedAdapter(), telemetry=here, settings=Settings(threads="memory")
        )
        async with serving(receiver.app(path=PATH)) as port:
            there = build_telemetry(
                TelemetryOptions(
                    store="none", endpoint=f"http://127.0.0.1:{port}", signals=("traces",)
                )
            )
            sender = CopilotRuntime(
                ScriptedAdapter(say("Hello.")), telemetry=there, settings=Settings(threads="memory")
            )
            async with Client(sender) as client:
                await client.say("Hi")
            await there.aclose()
            await here.flush()
            assert isinstance(here, LocalTelemetry)
            assert isinstance(here.store, TraceStore)
            traces = await here.store.list_traces()
            assert len(traces) == 1
            names = {span["name"] for span in await here.store.get_trace(traces[0].trace_id)}
    assert names == {"invoke_agent default", "chat"}
    assert inbox.spans == []
