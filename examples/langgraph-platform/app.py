"""A graph on a LangGraph server, registered by one line. `graph.py` is such a graph.

    cd examples/langgraph-platform && langgraph dev              # in one terminal
    uvicorn --app-dir examples/langgraph-platform app:app        # in another

No key is needed. LANGGRAPH_URL names a server elsewhere, LANGSMITH_API_KEY the key it wants. The
pages of `examples/react-v1` (trip.html) and `examples/react-v2` show what the graph does.
"""

import os

from copilot_runtime import CopilotRuntime, LangGraphAgent

trip = LangGraphAgent(
    os.environ.get("LANGGRAPH_URL", "http://127.0.0.1:2024"),
    graph="trip",
    api_key=os.environ.get("LANGSMITH_API_KEY"),
    description="Plans a trip",
)

app = CopilotRuntime(agents={"trip": trip}).app()
