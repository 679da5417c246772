"""An analyst that answers questions about the data of a shop, and shows where numbers come from.

    uvicorn --app-dir examples/analyst server:app

Open examples/react-v2 (`npm run dev`, then /analyst.html) and ask for revenue by month as a chart.
With OPENAI_API_KEY set, a real model asks the data; without it, the demo model does, by rules.
"""

import os
from pathlib import Path

from copilot_runtime import CopilotRuntime, DemoAdapter, OpenAIAdapter, Settings

HERE = Path(__file__).parent

ANALYST = {
    "name": "analyst",
    "data": [str(HERE / "data/*.csv"), str(HERE / "data/*.parquet")],
    "folder": str(HERE / "config"),
    "approval_rows": 300,  # small, so that you see how a large download asks first
}

QUESTIONS = [
    "Show revenue by month as a chart",
    "Which products come back most often?",
    "Export the orders of June 2026 as CSV",
]

model = OpenAIAdapter(model="gpt-4o") if os.environ.get("OPENAI_API_KEY") else DemoAdapter()
app = CopilotRuntime(
    adapter=model,
    settings=Settings.model_validate(
        {"analyst": ANALYST, "console": {"suggestions": {"analyst": QUESTIONS}}}
    ),
).app()
