"""The interface with which extensions observe and admit runs."""

from collections.abc import Sequence

from copilot_runtime.api.events import RunFailed, RunFinished, RunStarted, Usage
from copilot_runtime.runtime.run import Run


class RunObserver:
    """Observes the start and the end of every run. Override the methods you need.

    Events in between are not observed here; use a `Stage` for them.
    """

    counts_usage: bool = False
    """`True` if `count_usage` is to be called, for which the run's log is read again."""

    async def admit(self, run: Run) -> None:
        """Raise a `CopilotError` to refuse a run before it is prepared."""

    def on_refusal(self, run: Run, error: BaseException) -> None:
        """Called when a run has failed before its log existed. Must not block or raise."""

    def on_start(self, run: Run, event: RunStarted) -> None:
        """Called when the first event of a run is in its log. Must not block or raise."""

    async def count_usage(self, run: Run, usages: Sequence[Usage]) -> None:
        """Called with the model usage of a run that has ended, before the hooks of the program."""

    def on_end(self, run: Run, event: RunFinished | RunFailed, *, is_lost: bool) -> None:
        """Called when a run has ended. Must not block or raise.

        `is_lost` is true if another process has already stored another end of this run.
        """
