"""Three assistants that are files, and hand a conversation over to each other.

    uvicorn --app-dir examples/assistants server:app

Open examples/react-v2 (`npm run dev`, then /assistants.html) and ask why the engine of MV Gannet
stopped, whether dogs travel on a lead, or both at once. With OPENAI_API_KEY set, a real model plays
the assistants; without it, one that follows rules.
"""

import os
from pathlib import Path

from pretend import PretendModel

from copilot_runtime import CopilotRuntime, OpenAIAdapter, Settings
from copilot_runtime.knowledge import Knowledge

HERE = Path(__file__).parent

QUESTIONS = [
    "Why did the engine of MV Gannet stop off St Brannoc?",
    "Do dogs travel on a lead?",
    "Why did the engine of MV Gannet stop, and do dogs travel on a lead?",
]

knowledge = Knowledge(
    os.environ.get("COPILOT_KNOWLEDGE_STORAGE") or "local:.copilot/skerry-line",
    sources=[HERE.parent / "knowledge" / "pages"],
    base="https://skerryline.example/",
)

app = CopilotRuntime(
    adapter=OpenAIAdapter(model="gpt-4o") if os.environ.get("OPENAI_API_KEY") else PretendModel(),
    knowledge=knowledge,
    settings=Settings.model_validate(
        {
            "assistants": {"folder": str(HERE / "assistants")},
            "subagent_events": True,
            "console": {"suggestions": {"desk": QUESTIONS}},
        }
    ),
).app()
