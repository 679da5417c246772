"""The interface with which extensions observe and admit runs."""

import logging
from asyncio import CancelledError, iscoroutine
from collections.abc import Callable, Sequence

from copilot_runtime.api.events import RunFailed, RunFinished, RunStarted
from copilot_runtime.runtime.run import Run

logger = logging.getLogger(__name__)


class RunObserver:
    """Observes the start and the end of every run. Override the methods you need.

    Events in between are not observed here; use a `Stage` for them.
    """

    async def admit(self, run: Run) -> None:
        """Raise a `CopilotError` to refuse a run before it is prepared, or bound its `request`."""

    def on_refusal(self, run: Run, error: BaseException) -> None:
        """Called when a run has failed before its log existed. Must not block."""

    def on_start(self, run: Run, event: RunStarted) -> None:
        """Called when the first event of a run is in its log. Must not block."""

    def on_end(self, run: Run, event: RunFinished | RunFailed, *, is_lost: bool) -> None:
        """Called when a run has ended. Must not block.

        `is_lost` is true if another process has already stored another end of this run.
        """


class RunObservers:
    """All observers of a runtime. One that fails is logged, and harms no run and no other one."""

    def __init__(self, observers: Sequence[RunObserver] = ()) -> None:
        base = RunObserver  # a method that an observer does not override is never called
        self._gates = [one for one in observers if type(one).admit is not base.admit]
        self._refused = [
            one.on_refusal for one in observers if type(one).on_refusal is not base.on_refusal
        ]
        self._started = [
            one.on_start for one in observers if type(one).on_start is not base.on_start
        ]
        self._ended = [one.on_end for one in observers if type(one).on_end is not base.on_end]

    async def admit(self, run: Run) -> None:
        """Raise the first refusal of a run. Any other error of an observer refuses it, too."""
        for gate in self._gates:
            await gate.admit(run)

    def on_refusal(self, run: Run, error: BaseException) -> None:
        for method in self._refused:
            _call(method, run, error)

    def on_start(self, run: Run, event: RunStarted) -> None:
        for method in self._started:
            _call(method, run, event)

    def on_end(self, run: Run, event: RunFinished | RunFailed, *, is_lost: bool) -> None:
        for method in self._ended:
            _call(method, run, event, is_lost=is_lost)


_FAILED = "The observer %s failed; the run goes on"


def _call(method: Callable[..., object], *args: object, **options: object) -> None:
    try:
        result = method(*args, **options)
        if result is not None and iscoroutine(result):
            result.close()
            raise TypeError("This method must not be async.")
    except (Exception, CancelledError):
        logger.exception(_FAILED, method.__qualname__.rpartition(".")[0])
