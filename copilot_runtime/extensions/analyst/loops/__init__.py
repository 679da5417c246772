"""Runs the analyst's model and tools: our own loop, or the SDK of another framework."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from copilot_runtime.api.adapter import Adapter
from copilot_runtime.api.events import Events
from copilot_runtime.api.registry import Registry
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.extensions.analyst.settings import AnalystSettings

LOOPS = {
    "own": "copilot_runtime.extensions.analyst.loops.own:run_loop",
    "openai-agents": "copilot_runtime.extensions.analyst.loops.openai_agents:run_loop",
    "pydantic-ai": "copilot_runtime.extensions.analyst.loops.pydantic_ai:run_loop",
}
"""Name in the setting `analyst.framework` → import string."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopRequest:
    """One question, ready for a model."""

    run: RunInput
    """The run, with the messages and the actions for the model."""
    instructions: str
    adapter: Adapter
    """The model adapter of our own loop."""
    model: Any = None
    """The model for a framework: its name, or an object of that framework."""
    max_turns: int = 12
    timeout: float = 60.0
    """Timeout of a tool, in seconds."""


Loop = Callable[[LoopRequest], Events]
"""Yields the model's text and calls, and the results of the calls."""


def find_loop(settings: AnalystSettings) -> Loop:
    """Return the loop of the settings. Raises `MissingPackage`."""
    return Registry("copilot_runtime.analyst_loops", LOOPS, noun="framework")[settings.framework]
