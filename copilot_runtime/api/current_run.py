"""The run for which code is called, wherever it is."""

from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from copilot_runtime.api.events import Event, Usage
from copilot_runtime.api.run_input import RunInput

WaitForStorage = Callable[[], Coroutine[Any, Any, None]]
"""Returns once another server would know of what is about to be done. Raises why it would not."""


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
    wait_for_storage: WaitForStorage | None = None
    """Waits before each effect: for the events of the run so far, as `Bus.wait_for_storage` does,
    or for the word that the plan of a task is still carried out here."""
    count_usage: Callable[[Usage], None] | None = None
    """Counts what a request to a model has used and no event says, such as an estimate for one
    that was stopped; None where nobody counts."""


CURRENT_RUN: ContextVar[RunSlot] = ContextVar("CURRENT_RUN")
"""The run in whose task, or in a task of that, code is called."""


async def wait_for_storage() -> None:
    """Return once what the current run is about to do may have effects outside.

    Raises why it may not: other servers would not know of it, and might do it again.
    """
    slot = CURRENT_RUN.get(None)
    if slot is not None and slot.wait_for_storage is not None:
        await slot.wait_for_storage()
