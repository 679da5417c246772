"""The Python side of react-v2: an agent that keeps a plan, asks before it books, and chats.

    uvicorn --app-dir examples/react-v2 server:app

With OPENAI_API_KEY set, a real model chats. The plan and the bookings need none: they are rules.
"""

import os
import re
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from copilot_runtime import Adapter, CopilotRuntime, DemoAdapter, Events, OpenAIAdapter, RunInput
from copilot_runtime.adapters.scripted import say
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api.events import AgentState, Event, Interrupt
from copilot_runtime.api.messages import TextMessage

AGENT = "trip"


class TripAgent:
    """Plans a trip together with a person; what it does not know, it leaves to a model."""

    description = "Plans a trip"

    def __init__(self, adapter: Adapter) -> None:
        self._chat = DirectAgent(adapter)

    def run(self, run: RunInput) -> Events:
        last = run.messages[-1] if run.messages else None
        asked = last.content if isinstance(last, TextMessage) and last.role == "user" else ""
        if run.resume:
            return _book(run, asked)
        if asked.lower().startswith("book "):
            return _ask(asked)
        if asked.lower().startswith("plan "):
            return _plan(run, asked.removeprefix(asked[:5]))
        if asked.lower().startswith("read the plan"):
            return _read(run)
        return self._chat.run(run)


async def _plan(run: RunInput, wish: str) -> Events:
    """Add stops to the state that page and agent share."""
    new = [stop.strip(" .") for stop in re.split(r",| and ", wish) if stop.strip(" .")]
    state = _state(run)
    stops = [*state.get("stops", []), *new]
    yield AgentState(agent=AGENT, state={**state, "stops": stops})
    for event in _said(f"Your plan has {len(stops)} stops now."):
        yield event


async def _read(run: RunInput) -> Events:
    """Show that the agent sees what the person changed."""
    stops = _state(run).get("stops", [])
    for event in _said(f"Your stops: {', '.join(stops) or 'none'}."):
        yield event


async def _ask(wish: str) -> Events:
    """End the run with a question; the answer comes with the next one."""
    question = f"{wish.strip(' .')}?"
    yield Interrupt(interrupt_id=f"book-{uuid4()}", reason="approval", message=question)


async def _book(run: RunInput, wish: str) -> Events:
    """Go on after the person has answered."""
    answer = run.resume[0]
    if answer.status == "resolved" and (answer.payload or {}).get("approved"):
        state = _state(run)
        booking = wish.strip(" .").removeprefix(wish[:5]).capitalize()
        bookings = [*state.get("bookings", []), booking]
        yield AgentState(agent=AGENT, state={**state, "bookings": bookings})
        words = "It is booked."
    else:
        words = "Then I book nothing."
    for event in _said(words):
        yield event


def _said(text: str) -> list[Event]:
    return say(text, id=str(uuid4()))


def _state(run: RunInput) -> Mapping[str, Any]:
    """Return the state as the page holds it: a person may have changed it."""
    held = run.agents.get(AGENT)
    return held.state if held else {}


adapter = OpenAIAdapter(model="gpt-4o") if os.environ.get("OPENAI_API_KEY") else DemoAdapter()
app = CopilotRuntime(adapter=adapter, agents={AGENT: TripAgent(adapter)}).app()
