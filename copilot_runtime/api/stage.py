"""Stages: observe, transform or reject the events of a run."""

from collections.abc import Callable

from copilot_runtime.api.events import Events
from copilot_runtime.api.run_input import RunInput

StageFunction = Callable[[Events, RunInput], Events]
"""A function from events to events, accepted in place of a `Stage`."""


class Stage:
    """Observes, transforms or rejects the events of a run. A plain function works as well."""

    def __call__(self, events: Events, run: RunInput) -> Events:
        """Return the transformed events of a run.

        An async generator that reads `events` under `contextlib.aclosing`. It may drop, replace
        and add events; a `…Start` that was yielded needs its `…End`. To refuse a run, raise a
        `CopilotError`. When the run is stopped, the generator is closed, and closes `events`.
        The default returns `events` unchanged.
        """
        del run
        return events

    def check(self, run: RunInput) -> None:
        """Raise a `CopilotError` to reject a run before it starts."""

    async def aclose(self) -> None:
        """Release the resources of the stage at shutdown."""
