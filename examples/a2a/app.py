"""A remote A2A agent, registered by its address, and our own agents offered to A2A clients.

    pip install ".[a2a]"    # in the root of the repository
    uvicorn --app-dir examples/a2a agent:app --port 8001     # in one terminal
    uvicorn --app-dir examples/a2a app:app                   # in another

Open http://127.0.0.1:8000/ and choose the agent `weather`, or ask the agent `default` to "weather":
the model hands over to it. The cards for other programs are below http://127.0.0.1:8000/graphql/a2a.
"""

import os

from copilot_runtime import CopilotRuntime, DemoAdapter, Settings
from copilot_runtime.extensions.a2a.client import A2aAgent

AGENT_URL = os.environ.get("AGENT_URL", "http://127.0.0.1:8001")

runtime = CopilotRuntime(
    DemoAdapter(),
    agents={"weather": A2aAgent(AGENT_URL, description="Knows the weather of any city.")},
    settings=Settings(hand_over="always", serve_a2a=True),
)
app = runtime.app()
