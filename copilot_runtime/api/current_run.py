"""The current run, as a context variable."""

from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from copilot_runtime.api.events import Event, Usage
from copilot_runtime.api.run_input import RunInput

WaitForStorage = Callable[[], Coroutine[Any, Any, None]]
"""Waits until other servers can see the pending events. Raises the error of the store."""


@dataclass(slots=True)
class RunSlot:
    """A reference to the current run, cleared at its end, so that contexts do not leak it."""

    run: RunInput | None
    is_stopped: bool = False
    """Whether the run was stopped; it may also end early because the server shuts down."""
    traces_tools: bool = False
    """Whether the agent creates tool spans itself, so that none are derived from its events."""
    closing_events: Sequence[Event] = ()
    """Final states and activities of a stopped agent, to be sent before the end of the run."""
    wait_for_storage: WaitForStorage | None = None
    """Called before each side effect: waits until the events so far are durable, as
    `Bus.wait_for_storage` does, or until this server is confirmed to execute the plan."""
    count_usage: Callable[[Usage], None] | None = None
    """Records token usage that no event reports, such as the estimate for a stopped request; None
    if usage is not recorded."""


CURRENT_RUN: ContextVar[RunSlot] = ContextVar("CURRENT_RUN")
"""The run of the current task, inherited by its child tasks."""


async def wait_for_storage() -> None:
    """Wait until the current run may perform a side effect.

    Raises the error of the store: other servers would not know of the call, and might repeat it.
    """
    slot = CURRENT_RUN.get(None)
    if slot is not None and slot.wait_for_storage is not None:
        await slot.wait_for_storage()
