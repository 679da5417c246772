"""A crew of CrewAI behind a runtime. `crew.py` is the crew; README.md tells how to start both."""

import os

from copilot_runtime import AguiAgent, CopilotRuntime

CREW_URL = os.environ.get("CREW_URL", "http://127.0.0.1:8001/crew")

app = CopilotRuntime(
    agents={"default": AguiAgent(CREW_URL, description="Finds out about a topic.")}
).app()
