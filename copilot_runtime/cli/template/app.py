"""The application: FastAPI with a CopilotKit runtime at /api/copilotkit."""

from pathlib import Path

from fastapi import FastAPI

from copilot_runtime import CopilotRuntime, action
from copilot_runtime.adapters.demo import DemoAdapter

HOURS = {"saturday": "10 to 14", "sunday": "closed"}


@action
def opening_hours(day: str) -> str:
    """Look up when the library is open on a day of the week."""
    return HOURS.get(day.lower(), "9 to 18")


runtime = CopilotRuntime(
    adapter=DemoAdapter(),
    instructions=Path(__file__).with_name("instructions.md").read_text(encoding="utf-8"),
    actions=[opening_hours],
)
app = FastAPI()
runtime.mount(app, "/api/copilotkit", console=True)
