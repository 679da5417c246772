"""The run for which code is called, wherever it is."""

from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from copilot_runtime.events import Event
from copilot_runtime.interfaces.run_input import RunInput


@dataclass(slots=True)
class RunSlot:
    """Has a run while it goes on: contexts of tasks and timers outlive it, and must not hold it."""

    run: RunInput | None
    is_stopped: bool = False
    """Whether somebody has stopped the run; it also ends early when the server does."""
    traces_tools: bool = False
    """Whether the agent makes spans of its tools itself, so that its events make none."""
    closing_events: Sequence[Event] = ()
    """What an agent that somebody stopped still has to show: states and activities."""
    wait_for_storage: Callable[[], Coroutine[Any, Any, None]] | None = None
    """Waits as `Bus.wait_for_storage` does, for the events of the run so far."""


CURRENT_RUN: ContextVar[RunSlot] = ContextVar("CURRENT_RUN")
"""The run in whose task, or in a task of that, code is called."""
