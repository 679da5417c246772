"""Whoever runs `make run` gets a chart of the example's data, without a key."""

import os
import re
from pathlib import Path

import pytest

from copilot_runtime import CopilotRuntime, DemoAdapter, Settings
from copilot_runtime.api.events import Activity
from copilot_runtime.extensions.settings import load_settings
from copilot_runtime.testing import Client
from tests.documents import ROOT

pytestmark = pytest.mark.anyio


def read_variable(name: str) -> str:
    """Return what the Makefile gives a variable where the example is there."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    pattern = rf"^run: export {name} \?= \$\(if \$\(wildcard [^)]+\),(.+?)(?:,custom/config)?\)$"
    (value,) = re.findall(pattern, text, re.MULTILINE)
    return value.replace("$(comma)", ",")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.chdir(ROOT)
    names = [f"COPILOT_ANALYST_{name}" for name in ("NAME", "DATA", "FOLDER")]
    environ = {name: read_variable(name) for name in names}
    environ |= {"COPILOT_ANALYST_STORE": str(tmp_path), "COPILOT_THREADS": "memory"}
    return load_settings(os.devnull, environ)


async def test_the_demo_model_draws_a_chart_and_finds_what_is_wrong(settings: Settings) -> None:
    runtime = CopilotRuntime(DemoAdapter(pace=0), settings=settings)
    async with Client(runtime, agent="analyst") as client:
        reply = await client.say("Show revenue by month as a chart")
        charts = [
            event.content
            for event in reply.events
            if isinstance(event, Activity) and event.activity_type == "analyst-chart"
        ]
        assert [chart["title"] for chart in charts] == ["Revenue by month"]
        assert len(charts[0]["vega_lite"]["data"]["values"]) == 18

        reply = await client.say("Which products come back most often?")
        assert "**Trail lantern**" in reply.text

        reply = await client.say("Compare the faithfulness of lark-1 and lark-2")
        assert "Here is what I found." in reply.text
