"""The application: FastAPI with a CopilotKit runtime at /api/copilotkit."""

import os
from pathlib import Path
from typing import Literal

from fastapi import FastAPI

from copilot_runtime import CopilotRuntime, DemoAdapter, OpenAIAdapter, action

Day = Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
HOURS = {"Saturday": "10 to 14", "Sunday": "closed"}


@action
def opening_hours(day: Day) -> str:
    """Look up when the library is open on a day of the week."""
    return HOURS.get(day, "9 to 18")


runtime = CopilotRuntime(
    adapter=OpenAIAdapter() if os.environ.get("OPENAI_API_KEY") else DemoAdapter(),
    instructions=Path(__file__).with_name("instructions.md").read_text(encoding="utf-8"),
    actions=[opening_hours],
)
app = FastAPI()
runtime.mount(app, "/api/copilotkit", console=True)
