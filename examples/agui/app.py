"""A remote agent that speaks AG-UI, registered by one line. `agent.py` is such an agent.

    uvicorn --app-dir examples/agui agent:app --port 8001     # in one terminal
    uvicorn --app-dir examples/agui app:app                   # in another

Open http://127.0.0.1:8000/, or point a React app at http://127.0.0.1:8000/graphql: the agent is
called `default`, as CopilotKit calls the one it asks when none is named. Threads, stop and reload
are the runtime's; the agent needs to know nothing about them.
"""

import os

from copilot_runtime import AguiAgent, CopilotRuntime

AGENT_URL = os.environ.get("AGENT_URL", "http://127.0.0.1:8001/")

app = CopilotRuntime(agents={"default": AguiAgent(AGENT_URL)}).app()
