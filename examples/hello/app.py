"""The smallest runtime. Start it, and open http://127.0.0.1:8000/ or point a React app at /graphql.

    copilot-runtime serve examples/hello/app:app
    uvicorn --app-dir examples/hello app:app

With OPENAI_API_KEY set, a real model answers.
"""

import os

from copilot_runtime import CopilotRuntime, DemoAdapter, OpenAIAdapter

if os.environ.get("OPENAI_API_KEY"):
    adapter = OpenAIAdapter(model="gpt-4o")
else:
    print("OPENAI_API_KEY is not set: the demo model answers. It is not a language model.")
    adapter = DemoAdapter()

app = CopilotRuntime(adapter=adapter).app()
