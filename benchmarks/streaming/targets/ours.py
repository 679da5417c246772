"""Ours: the mock as a model (`default`) and as an AG-UI agent (`remote`). MOCK_URL, TARGET_DIR."""

import os
from pathlib import Path

from copilot_runtime import CopilotRuntime, OpenAIAdapter
from copilot_runtime.agents.agui import AguiAgent
from copilot_runtime.threads.sqlite import SqliteThreads

MOCK_URL = os.environ["MOCK_URL"]

adapter = OpenAIAdapter(model="gpt-4o", api_key="sk-mock", base_url=f"{MOCK_URL}/v1")
runtime = CopilotRuntime(
    adapter=adapter,
    agents={"remote": AguiAgent(f"{MOCK_URL}/agui/run")},
    threads=SqliteThreads(Path(os.environ["TARGET_DIR"]) / "threads.db"),
)
