"""A planner whose tasks are done by assistants and tools that are files.

    uvicorn --app-dir examples/planner server:app

Open examples/react-v2 (`npm run dev`, then /planner.html) and ask for an extra sailing to
St Brannoc. With OPENAI_API_KEY set, a real model plans, works and judges; without it, one that
follows rules.
"""

import os
from pathlib import Path

from pretend import PretendModel

from copilot_runtime import CopilotRuntime, OpenAIAdapter, Settings

HERE = Path(__file__).parent

SUGGESTIONS = ["Plan an extra sailing to St Brannoc on Saturday.", "How far is it?", "Try again."]

model = OpenAIAdapter(model="gpt-4o") if os.environ.get("OPENAI_API_KEY") else PretendModel()

app = CopilotRuntime(
    adapter=model,
    settings=Settings.model_validate(
        {
            "assistants": {"folder": str(HERE / "assistants")},
            "tools": str(HERE / "tools.yml"),
            "planner": {"name": "planner"},
            "console": {"suggestions": {"planner": SUGGESTIONS}},
        }
    ),
).app()
