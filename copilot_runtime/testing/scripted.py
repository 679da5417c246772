"""Models and agents with scripted answers for tests, and functions that build their events."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import Any

from copilot_runtime.adapters import scripted
from copilot_runtime.adapters.empty import EmptyAdapter
from copilot_runtime.adapters.scripted import Gate, Script
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api.adapter import Adapter, SupportsStream
from copilot_runtime.api.agent import Agent
from copilot_runtime.api.argument_checks import complete
from copilot_runtime.api.events import AgentState, Event, Events, Interrupt
from copilot_runtime.api.messages import new_id
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.app.app import CopilotRuntime
from copilot_runtime.base.errors import Misuse

AgentTurn = (
    Sequence[Event | Exception] | Callable[[RunInput], Sequence[Event | Exception]] | Exception
)
"""The answer to one run. An exception is raised at its position."""


class ScriptedAgent(Agent):
    """An agent that yields one turn per run, in order, and records the runs.

    >>> agent = ScriptedAgent(ask("Book it?"), say("It is booked."))

    Args:
        turns: The turns: events, an exception that is raised at its position, or a function that
            takes the `RunInput` and returns them.
        description: The purpose of the agent.
        gate: If set, each event waits until the test releases it here.
    """

    def __init__(self, *turns: AgentTurn, description: str = "", gate: Gate | None = None) -> None:
        self.description = description
        self._script = Script[RunInput]("ScriptedAgent", turns, gate)

    @property
    def runs(self) -> Sequence[RunInput]:
        """The runs so far."""
        return self._script.requests

    async def run(self, run: RunInput) -> Events:
        """Yield the events of the next turn. Raises `Misuse` if no turn is left."""
        async with aclosing(self._script.play(run)) as events:
            async for event in events:
                if isinstance(event, AgentState) and not event.agent:
                    event = replace(event, agent=run.agent_name)
                yield event


def say(text: str | Iterable[str], *, id: str | None = None) -> list[Event]:
    """Return the events of a text, whole or in chunks; its identifier is new by default."""
    return scripted.say(text, id=id or new_id())


def call(
    name: str, arguments: Mapping[str, Any] | str | None = None, *, id: str | None = None
) -> list[Event]:
    """Return the events of a tool call; its identifier is new by default."""
    return scripted.call(name, arguments, id=id or new_id())


def set_state(state: Any) -> list[Event]:
    """Return the event with which a `ScriptedAgent` changes its state."""
    return [AgentState(agent="", state=state)]


def ask(message: str, *, value: Any = None, id: str | None = None) -> list[Event]:
    """Return the event of a question to the user; the run ends, and the answer resumes it."""
    interrupt_id = id or new_id()
    if value is None:  # the only part that CopilotKit 1.10 clients get
        value = {"id": interrupt_id, "reason": "input", "message": message}
    return [Interrupt(interrupt_id=interrupt_id, message=message, value=value)]


@contextmanager
def replace_adapter(
    runtime: CopilotRuntime, adapter: SupportsStream
) -> Generator[None, None, None]:
    """Replace the model of a runtime within a context, for example by a `ScriptedAdapter`.

    >>> with replace_adapter(main.runtime, ScriptedAdapter(say("Hello."))): ...

    Raises `Misuse` for a runtime without a model, in which no plain chat reaches the replacement.
    """
    chat = runtime.runtime.chat
    if not isinstance(chat, DirectAgent) or isinstance(runtime.adapter, EmptyAdapter):
        raise Misuse(
            "The runtime has no model that could be replaced. Make it with one, as in "
            "CopilotRuntime(DemoAdapter(), agents=...), or replace its agents by ScriptedAgents."
        )
    before = runtime.adapter
    runtime.adapter = chat.adapter = complete(Adapter, adapter)
    try:
        yield
    finally:
        runtime.adapter = chat.adapter = before
