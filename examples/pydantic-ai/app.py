"""An agent of pydantic-ai that plans a trip: it shares the plan, and asks before it books.

    uvicorn --app-dir examples/pydantic-ai app:app

The pages of `examples/react-v1` (trip.html) and `examples/react-v2` show what it does. With
OPENAI_API_KEY set, a real model answers; without, rules pretend to be one.
"""

import os

from ag_ui.core import EventType, StateSnapshotEvent
from pretend import pretend
from pydantic import BaseModel
from pydantic_ai import Agent, RunContext, ToolReturn
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.ui import StateDeps

from copilot_runtime import CopilotRuntime
from copilot_runtime.extensions.frameworks.pydantic_ai import PydanticAIAgent


class Plan(BaseModel):
    """What page and agent share; either may change it."""

    stops: list[str] = []
    bookings: list[str] = []


Context = RunContext[StateDeps[Plan]]


agent = Agent(
    "openai:gpt-4o" if os.environ.get("OPENAI_API_KEY") else FunctionModel(stream_function=pretend),
    deps_type=StateDeps[Plan],
)


@agent.instructions
def instructions(ctx: Context) -> str:
    return f"You plan a trip. The stops so far: {ctx.deps.state.stops}."


@agent.tool
def add_stops(ctx: Context, stops: list[str]) -> ToolReturn:
    """Add stops to the plan."""
    ctx.deps.state.stops += stops
    return shown(ctx, f"Your plan has {len(ctx.deps.state.stops)} stops now")


@agent.tool(requires_approval=True)
def book(ctx: Context, what: str) -> ToolReturn:
    """Book something. The page asks the person first."""
    ctx.deps.state.bookings.append(what)
    return shown(ctx, f"I have booked {what}")


def shown(ctx: Context, said: str) -> ToolReturn:
    """Return what a tool says, and show the page the plan as it is now."""
    state = ctx.deps.state.model_dump()
    event = StateSnapshotEvent(type=EventType.STATE_SNAPSHOT, snapshot=state)
    return ToolReturn(said, metadata=[event])


trip = PydanticAIAgent(agent, StateDeps(Plan()), description="Plans a trip")

app = CopilotRuntime(agents={"trip": trip}).app()
