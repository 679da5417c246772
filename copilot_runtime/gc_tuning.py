"""Keep Python's cyclic garbage collector out of the way of a server.

Every request makes some thousand objects that are freed by reference counting, and each few
hundred of them set the collector off on everything that was ever imported. Measured with 200
messages in a conversation, that was a third of the CPU of a chat.
"""

import gc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

_SERVING = (10_000, 50, 50)
"""Objects more than freed ones before a look at the young, the older and the old.

Python 3.11 begins with (700, 10, 10).
"""

_STARTING = (50_000, 10, 10)


def tune_for_startup() -> None:
    """Collect rarely while a program imports its modules: nothing of that is garbage."""
    gc.set_threshold(*_STARTING)


# one entry per application: a process has one collector
_saved_thresholds: list[tuple[int, int, int]] = []


@asynccontextmanager
async def tune_while_serving(_app: object) -> AsyncGenerator[None, None]:
    """A lifespan: collect less often, and less, until the last application has ended."""
    _saved_thresholds.append(gc.get_threshold())
    # What is here now stays: never look at it again. Nor now: a collection would take 60 ms of the
    # start, for a hundred objects, and as much of every test that starts an application.
    gc.freeze()
    gc.set_threshold(*_SERVING)
    try:
        yield
    finally:
        first = _saved_thresholds[0]
        _saved_thresholds.pop()
        if not _saved_thresholds:
            gc.set_threshold(*first)
            gc.unfreeze()


def freeze_imports() -> None:
    """Never look again at what has been imported while an application serves."""
    if _saved_thresholds:
        gc.freeze()
