"""Runs the analyst's model and tools: our own loop, or the SDK of another framework."""

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api.adapter import Adapter, ChatRequest, ModelEndpoint
from copilot_runtime.api.events import Events
from copilot_runtime.api.registry import Registry
from copilot_runtime.api.run_input import Parameters, RunInput
from copilot_runtime.extensions.analyst.settings import AnalystSettings

LOOPS = {
    "own": "copilot_runtime.extensions.analyst.loops:run_loop",
    "openai-agents": "copilot_runtime.extensions.analyst.framework_loops:run_openai_agents",
    "pydantic-ai": "copilot_runtime.extensions.analyst.framework_loops:run_pydantic_ai",
}
"""Name in the setting `analyst.framework` → import string."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopRequest:
    """One question, ready for a model."""

    run: RunInput
    """The run, with the messages and the actions for the model."""
    instructions: str
    adapter: Adapter
    """The model adapter, which the Agents SDK uses as well."""
    model: Any = None
    """The model: its name, or an object of the framework."""
    max_turns: int = 12
    timeout: float = 60.0
    """Timeout of a tool, in seconds."""


Loop = Callable[[LoopRequest], Events]
"""Yields the model's text and calls, and the results of the calls."""


def find_loop(settings: AnalystSettings) -> Loop:
    """Return the loop of the settings. Raises `MissingPackage`."""
    return Registry("copilot_runtime.analyst_loops", LOOPS, noun="framework")[settings.framework]


def run_loop(request: LoopRequest) -> Events:
    """Yield the events of the model and its tools. Raises the errors of `DirectAgent`."""
    agent = DirectAgent(
        request.adapter,
        instructions=request.instructions,
        parameters=Parameters(model=request.model) if isinstance(request.model, str) else None,
        max_turns=request.max_turns,
        action_timeout=request.timeout,
        shared_state=False,
    )
    return agent.run(replace(request.run, follow_up="server"))


class TurnAdapter(Adapter):
    """An adapter that reports the start and the end of each model response."""

    def __init__(self, adapter: Adapter, on_turn: Callable[[bool], None]) -> None:
        self.inner = adapter
        self._on_turn = on_turn

    async def stream(self, request: ChatRequest) -> Events:
        """Yield the adapter's events."""
        self._on_turn(True)
        try:
            async with aclosing(self.inner.stream(request)) as events:
                async for event in events:
                    yield event
        finally:
            self._on_turn(False)

    def check(self, run: RunInput) -> None:
        self.inner.check(run)

    def endpoint(self, request: ChatRequest) -> ModelEndpoint:
        return self.inner.endpoint(request)
