"""The tools of an MCP server as actions. `server.py` is such a server.

    uvicorn --app-dir examples/mcp app:app

Ask at http://127.0.0.1:8000/ to find the book Momo, or to lend Emma. The server is a process of
the runtime's own; MCP_URL names one that is reached over HTTP.
"""

import os
import sys
from pathlib import Path

from copilot_runtime import CopilotRuntime, DemoAdapter, McpServer, OpenAIAdapter

HERE = Path(__file__).parent

if url := os.environ.get("MCP_URL"):
    library = McpServer(url, name="library", prefix="library_")
else:
    command = [sys.executable, str(HERE / "server.py")]
    library = McpServer(command=command, name="library", prefix="library_")

if os.environ.get("OPENAI_API_KEY"):
    adapter = OpenAIAdapter(model="gpt-4o")
else:
    print("OPENAI_API_KEY is not set: the demo model answers. It is not a language model.")
    adapter = DemoAdapter()

app = CopilotRuntime(adapter=adapter, mcp_servers=[library]).app()
