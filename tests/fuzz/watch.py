"""What must hold for every input: no exception, no error in the log, little CPU."""

import asyncio
import gc
import logging
from collections.abc import Awaitable
from time import process_time
from typing import Any, Self

MOST_CPU = 0.5
"""Seconds of CPU for one input."""

_PATIENCE = 120.0
"""Seconds until an input counts as one that never ends; machines may be busy."""


class Watch(logging.Handler):
    """Tries inputs, and remembers the one that took most CPU."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.count = 0
        self.slowest: tuple[float, int] = (0.0, -1)
        self._faults: list[str] = []
        self._collects = False

    def emit(self, record: logging.LogRecord) -> None:
        """Take an exception in the log for a fault."""
        if record.exc_info:
            self._faults.append(logging.Formatter().format(record))

    def __enter__(self) -> Self:
        self._collects = gc.isenabled()
        gc.disable()
        logging.getLogger().addHandler(self)
        asyncio.get_running_loop().set_exception_handler(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)
        if self._collects:
            gc.enable()
        asyncio.get_running_loop().set_exception_handler(None)

    async def try_input(self, number: int, work: Awaitable[None], shown: object) -> None:
        """Await what one input causes. `shown` is the input, for who has to repair something."""
        if self.count % 100 == 0:
            gc.collect()  # or an input pays for what others have left
        began = process_time()
        try:
            async with asyncio.timeout(_PATIENCE):
                await work
        except BaseException as error:
            error.add_note(f"{self.kind} {number}: {str(shown)[:3000]}")
            raise
        spent = process_time() - began
        self.count += 1
        self.slowest = max(self.slowest, (spent, number))
        if spent > MOST_CPU:
            self._faults.append(f"It took {spent:.2f} s of CPU.")
        if self._faults:
            faults, self._faults = "\n".join(self._faults), []
            raise AssertionError(f"{self.kind} {number}: {faults}\n{str(shown)[:3000]}")

    def report(self) -> str:
        seconds, number = self.slowest
        return f"{self.kind}: the slowest of {self.count} inputs, {number}, took {seconds:.3f} s"

    def _note(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._faults.append(repr(context))
