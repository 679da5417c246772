"""The interface with which extensions observe and admit runs."""

import logging
from asyncio import iscoroutine
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from copilot_runtime.api.events import RunFailed, RunFinished, RunStarted, Usage
from copilot_runtime.base.outages import log_failures
from copilot_runtime.runtime.run import Run

logger = logging.getLogger(__name__)


class RunObserver:
    """Observes the start and the end of every run. Override the methods you need.

    Events in between are not observed here; use a `Stage` for them.
    """

    counts_usage: bool = False
    """`True` if `count_usage` is to be called, for which the run's log is read again."""

    async def admit(self, run: Run) -> None:
        """Raise a `CopilotError` to refuse a run before it is prepared."""

    def on_refusal(self, run: Run, error: BaseException) -> None:
        """Called when a run has failed before its log existed. Must not block."""

    def on_start(self, run: Run, event: RunStarted) -> None:
        """Called when the first event of a run is in its log. Must not block."""

    async def count_usage(self, run: Run, usages: Sequence[Usage]) -> None:
        """Called with the model usage of a run that has ended, before the hooks of the program."""

    def on_end(self, run: Run, event: RunFinished | RunFailed, *, is_lost: bool) -> None:
        """Called when a run has ended. Must not block.

        `is_lost` is true if another process has already stored another end of this run.
        """


class RunObservers:
    """All observers of a runtime. One that fails is logged, and harms no run and no other one."""

    def __init__(self, observers: Sequence[RunObserver] = ()) -> None:
        self._observers = observers
        self._gates = [one for one in observers if type(one).admit is not RunObserver.admit]
        self._meters = [one for one in observers if one.counts_usage]

    @property
    def counts_usage(self) -> bool:
        """`True` if an observer counts model usage."""
        return bool(self._meters)

    async def admit(self, run: Run) -> None:
        """Raise the first refusal of a run. Any other error of an observer refuses it, too."""
        for gate in self._gates:
            await gate.admit(run)

    def on_refusal(self, run: Run, error: BaseException) -> None:
        self._call(lambda one: one.on_refusal(run, error))

    def on_start(self, run: Run, event: RunStarted) -> None:
        self._call(lambda one: one.on_start(run, event))

    async def count_usage(self, run: Run, usages: Sequence[Usage]) -> None:
        for meter in self._meters:
            with _isolate(meter):
                await meter.count_usage(run, usages)

    def on_end(self, run: Run, event: RunFinished | RunFailed, *, is_lost: bool) -> None:
        self._call(lambda one: one.on_end(run, event, is_lost=is_lost))

    def _call(self, call: Callable[[RunObserver], object]) -> None:
        for observer in self._observers:
            with _isolate(observer):
                result = call(observer)
                if iscoroutine(result):
                    result.close()
                    raise TypeError("This method must not be async.")


def _isolate(observer: RunObserver) -> AbstractContextManager[None]:
    name = type(observer).__qualname__
    return log_failures(logger, "The observer %s failed; the run goes on", name)
