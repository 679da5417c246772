"""What watches, changes or refuses the events of a run."""

from collections.abc import Callable

from copilot_runtime.api.events import Events
from copilot_runtime.api.run_input import RunInput

StageFunction = Callable[[Events, RunInput], Events]
"""Any function that takes the events of a run and returns them: accepted for a `Stage`."""


class Stage:
    """Watches, changes or refuses the events of a run. A plain function will do as well."""

    def __call__(self, events: Events, run: RunInput) -> Events:
        """Return the events of a run as they shall continue.

        An async generator that reads `events` under `contextlib.aclosing`. It may drop, replace
        and add events; a `…Start` that was yielded needs its `…End`. To refuse a run, raise a
        `CopilotError`. When the run is stopped, the generator is closed, and closes `events`.
        By default, nothing changes.
        """
        del run
        return events

    def check(self, run: RunInput) -> None:
        """Raise a `CopilotError` for a run that is refused before it starts."""

    async def aclose(self) -> None:
        """Release what the stage holds, when the server ends."""
