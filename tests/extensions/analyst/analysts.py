"""Analysts over small files, whose model follows a script."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from copilot_runtime.adapters.scripted import ScriptedAdapter
from copilot_runtime.api import RunInput
from copilot_runtime.api.events import Activity, AgentState, Event, TextMessageContent
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.event_order.verify import verify_events
from copilot_runtime.extensions.analyst.agent import AnalystAgent
from copilot_runtime.extensions.analyst.analyst import Analyst, RowValues
from copilot_runtime.extensions.analyst.settings import AnalystSettings
from copilot_runtime.runtime import Runtime
from copilot_runtime.telemetry.telemetry import NO_TELEMETRY, Telemetry
from copilot_runtime.threads.run_log import MemoryBus
from tests.runs import log_of

ORDERS = """\
owner,city,amount,latency,ordered_at
ann,Oslo,10,5,2026-01-01
ann,Oslo,20,n/a,2026-01-02
bob,Rome,30,7,2026-01-03
bob,Oslo,40,9,2026-01-04
"""


def build_analyst(
    folder: Path,
    *,
    row_values: RowValues | None = None,
    telemetry: Telemetry = NO_TELEMETRY,
    **settings: Any,
) -> Analyst:
    """Return an analyst of the table `orders`."""
    file = folder / "orders.csv"
    if not file.exists():
        file.write_text(ORDERS)
    more: dict[str, Any] = {"data": [str(file)], "threads": 1, "memory_enabled": False, **settings}
    return Analyst(
        AnalystSettings(
            name="analyst",
            store=str(folder / "store"),
            folder=str(folder / "config"),
            **more,
        ),
        row_values=row_values,
        telemetry=telemetry,
    )


def ask(text: str, **more: Any) -> RunInput:
    """Return a run that asks the analyst."""
    messages = more.pop("messages", [TextMessage(id="u1", role="user", content=text)])
    fields: dict[str, Any] = {"run_id": "r", "thread_id": "t", "agent": "analyst", **more}
    return RunInput(messages=messages, **fields)


async def run_agent(
    analyst: Analyst, run: RunInput, *turns: Any, telemetry: Telemetry = NO_TELEMETRY
) -> Sequence[Event]:
    """Return all events of a run but the first, of an analyst whose model says these turns."""
    agent = AnalystAgent(analyst, ScriptedAdapter(*turns))
    runtime = Runtime(
        agent, {"analyst": agent}, MemoryBus(), stages=[verify_events], telemetry=telemetry
    )
    await runtime.start(run)
    return (await log_of(runtime, run.log_id))[1:]


def list_activities(events: Sequence[Event], kind: str) -> list[Any]:
    """Return the contents of activities of a type, the last of each message."""
    found = {
        event.message_id: event.content
        for event in events
        if isinstance(event, Activity) and event.activity_type == kind
    }
    return [*found.values()]


def list_thoughts(events: Sequence[Event]) -> list[tuple[str, str]]:
    """Return type and text of the thoughts, in order, without those of data that load slowly."""
    (content,) = list_activities(events, "analyst-thoughts")
    thoughts = [(one["type"], one["content"]) for one in content["thoughts"]]
    return [one for one in thoughts if not one[1].startswith("Loading ")]


def read_text(events: Sequence[Event]) -> str:
    """Return all text."""
    return "".join(event.content for event in events if isinstance(event, TextMessageContent))


def read_state(events: Sequence[Event]) -> Any:
    """Return the last state."""
    return [event.state for event in events if isinstance(event, AgentState)][-1]
