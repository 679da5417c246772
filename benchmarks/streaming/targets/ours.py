"""Ours: a CopilotRuntime with an OpenAI model that is the mock. MOCK_URL."""

import os

from copilot_runtime import CopilotRuntime, OpenAIAdapter

MOCK_URL = os.environ["MOCK_URL"]

adapter = OpenAIAdapter(model="gpt-4o", api_key="sk-mock", base_url=f"{MOCK_URL}/v1")
runtime = CopilotRuntime(adapter=adapter)
