"""The agent of `examples/react-v2` and a plain chat: a program for `copilot-runtime serve`."""

import os

from copilot_runtime import CopilotRuntime, OpenAIAdapter
from tests.browser.trip_server import load_example

example = load_example()
adapter = OpenAIAdapter(
    model="gpt-4o", base_url=f"{os.environ['MODEL_URL']}/v1", api_key="sk-wrong"
)
runtime = CopilotRuntime(adapter, agents={example.AGENT: example.TripAgent(adapter)})
