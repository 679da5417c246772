"""One runtime with A2UI, MCP Apps and Open Generative UI.

    python examples/generative-ui/seats.py
    uvicorn --app-dir examples/generative-ui server:app

With OPENAI_API_KEY set, a real model draws; without it, one that follows rules. `seats.py` is the
MCP server whose app the page shows; SEATS_URL says where else one listens. Without it, all but the
seats is there.
"""

import os

from pretend import PretendModel

from copilot_runtime import CopilotRuntime, McpServer, OpenAIAdapter
from copilot_runtime.extensions.generative_ui.options import McpApps, McpAppServer

model = OpenAIAdapter(model="gpt-4o") if os.environ.get("OPENAI_API_KEY") else PretendModel()
seats = McpServer(os.environ.get("SEATS_URL", "http://127.0.0.1:8001/mcp"))

app = CopilotRuntime(
    adapter=model,
    instructions="You are at the desk of Skerry Line, a ferry company. Show rather than tell.",
    a2ui=True,
    mcp_apps=McpApps(servers=[McpAppServer(server=seats, id="seats")]),
    open_generative_ui=True,
).app()
