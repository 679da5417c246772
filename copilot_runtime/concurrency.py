"""Call a function that may be sync, async, slow or rude, without harm to the event loop."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, NamedTuple

MAX_THREADS = 512
"""Most sync calls at one time. One that never returns keeps its place."""

_places = threading.BoundedSemaphore(MAX_THREADS)


class Returned(NamedTuple):
    """What became of a call: a value, or what it raised."""

    value: Any = None
    error: BaseException | None = None


def is_async(function: Callable[..., Any]) -> bool:
    """Say whether calling `function` only makes a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
    )


async def call(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call `function`, in a thread of its own unless it is async."""
    if is_async(function):
        return await function(*args, **kwargs)
    returned = await _in_thread(lambda: function(*args, **kwargs))
    if returned.error is not None:
        raise returned.error
    value = returned.value
    return await value if inspect.isawaitable(value) else value


async def guarded(work: Coroutine[Any, Any, Any]) -> Returned:
    """Await `work` and keep what it raises, so that nothing it raises can end the loop."""
    try:
        return Returned(await work)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # SystemExit in a task would stop the whole server
        return Returned(error=error)


def _in_thread(work: Callable[[], Any]) -> "asyncio.Future[Returned]":
    """Run `work` in a daemon thread with the caller's context variables.

    Not in the loop's executor: a few calls that hang would take all its places, which name
    resolution needs as well, and its threads keep the process from ending.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Returned] = loop.create_future()
    places = _places

    def finish(returned: Returned) -> None:
        if not future.done():  # nobody waits any more: the late result is dropped
            future.set_result(returned)

    def run() -> None:
        try:
            returned = Returned(work())
        except BaseException as error:  # whatever it is, it must not stay in this thread
            returned = Returned(error=_tame(error))
        finally:
            places.release()
        if not loop.is_closed():
            try:
                loop.call_soon_threadsafe(finish, returned)
            except RuntimeError:  # closed between the question and the call
                return

    if not places.acquire(blocking=False):
        raise RuntimeError(f"{MAX_THREADS} sync calls are running already.")
    context = copy_context()
    try:
        threading.Thread(target=context.run, args=(run,), name="action", daemon=True).start()
    except BaseException:
        places.release()
        raise
    return future


def _tame(error: BaseException) -> BaseException:
    """Replace the exceptions that mean something else once they are raised in a coroutine."""
    taken_wrongly = (StopIteration, StopAsyncIteration, asyncio.CancelledError, SystemExit)
    if isinstance(error, taken_wrongly):
        tamed = RuntimeError(f"{type(error).__name__}: {error}")
        tamed.__cause__ = error
        return tamed
    return error
