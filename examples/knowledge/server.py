"""Questions to a ferry company that does not exist, answered from its pages.

    uvicorn --app-dir examples/knowledge server:app

Open http://127.0.0.1:8000/ and ask who the captain of MV Tern is, whether dogs may come along, or
how often MV Tern was cancelled in February. The page *Knowledge* shows what was taken in. With
OPENAI_API_KEY set, a real model answers; without it, the demo model quotes what was found.
"""

import os
from pathlib import Path

from copilot_runtime import CopilotRuntime, DemoAdapter, OpenAIAdapter
from copilot_runtime.knowledge import Knowledge

PAGES = Path(__file__).parent / "pages"

knowledge = Knowledge(
    os.environ.get("COPILOT_KNOWLEDGE_STORAGE") or "local:.copilot/skerry-line",
    sources=[PAGES],
    base="https://skerryline.example/",
)

if os.environ.get("OPENAI_API_KEY"):
    adapter = OpenAIAdapter(model="gpt-4o")
else:
    print("OPENAI_API_KEY is not set: the demo model answers. It is not a language model.")
    adapter = DemoAdapter()

app = CopilotRuntime(
    adapter=adapter,
    knowledge=knowledge,
    instructions="You answer for Skerry Line, a ferry company. Say what you do not know.",
).app()
