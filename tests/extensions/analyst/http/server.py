"""A server with an analyst, and what comes of its streams."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.requests import HTTPConnection
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.adapters.scripted import ScriptedAdapter
from copilot_runtime.extensions.analyst.settings import AnalystSettings
from copilot_runtime.extensions.tracing.settings import TelemetrySettings
from copilot_runtime.telemetry.telemetry import Telemetry
from tests.extensions.analyst.analysts import ORDERS

LOCAL = "http://127.0.0.1:8000"


async def sign_in(connection: HTTPConnection) -> str | None:
    """Return the user that a test names in a header."""
    return connection.headers.get("x-user") or None


def build_runtime(
    folder: Path,
    *turns: Any,
    telemetry: Telemetry | None = None,
    store: str = "memory",
    secret: str = "",
    **settings: Any,
) -> CopilotRuntime:
    """Return a runtime whose analyst's model says these turns, with such a store of threads."""
    (folder / "orders.csv").write_text(ORDERS)
    analyst: dict[str, Any] = {
        "name": "analyst",
        "data": [str(folder / "orders.csv")],
        "store": str(folder / "store"),
        "folder": str(folder / "config"),
        "row_filters": {"orders": "owner = $user"},
        "threads": 1,
        **settings,
    }
    return CopilotRuntime(
        ScriptedAdapter(*turns),
        authenticate=sign_in,
        telemetry=telemetry,
        settings=Settings(
            threads=store,
            secret=secret,
            analyst=AnalystSettings(**analyst),
            telemetry=TelemetrySettings(store="memory"),
        ),
    )


@contextmanager
def serve(folder: Path, *turns: Any, **settings: Any) -> Generator[TestClient]:
    """Serve such a runtime; its client is ann."""
    app = build_runtime(folder, *turns, **settings).app()
    with TestClient(app, LOCAL, headers={"x-user": "ann"}) as client:
        yield client


def read_events(text: str) -> list[tuple[str, Any]]:
    """Return names and data of server-sent events; None for no data."""
    found: list[tuple[str, Any]] = []
    for block in text.split("\n\n"):
        fields = dict(line.split(":", 1) for line in block.split("\n") if ":" in line)
        if "event" in fields:
            data = fields.get("data", "").strip()
            found.append((fields["event"].strip(), json.loads(data) if data else None))
    return found


def read_ids(text: str) -> list[str]:
    """Return the ids of server-sent events."""
    return [line[4:] for line in text.split("\n") if line.startswith("id: ")]
