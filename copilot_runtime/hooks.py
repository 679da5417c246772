"""Functions of the application that are called around a run."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from copilot_runtime import concurrency as calling
from copilot_runtime.errors import ErrorContext
from copilot_runtime.interfaces import RunInput
from copilot_runtime.messages import Message

logger = logging.getLogger(__name__)

BeforeRequest = Callable[[RunInput], RunInput | Awaitable[RunInput | None] | None]
AfterRequest = Callable[[RunInput, Sequence[Message]], Any]
OnError = Callable[[BaseException, ErrorContext], Any]
OnStop = Callable[[RunInput], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What to call and when. Each may be an `async def` or a plain function.

    An `async def` runs on the event loop and must not block. A plain function runs in a worker
    thread and may: it holds up its own request, nobody else's. Only `before_request` has a time
    limit, that of the run.
    """

    before_request: BeforeRequest | None = None
    """Sees a request before it starts. May return a changed one; raising refuses it."""
    after_request: AfterRequest | None = None
    """Gets the request and the messages that answered it, after a run that ended well."""
    error: OnError | None = None
    """Gets the whole error and where it happened, for every request that failed."""
    stop: OnStop | None = None
    """Gets the request of a run that was stopped, or whose client went away."""
    environment: str = ""
    """What `ErrorContext.environment` says."""


async def call(hook: Callable[..., Any] | None, *args: Any) -> Any:
    """Call a hook if there is one, wait for it and return what it returns."""
    return None if hook is None else await calling.call(hook, *args)


async def call_quietly(hook: Callable[..., Any] | None, *args: Any) -> None:
    """Call a hook; what it raises is logged, and not raised."""
    try:
        await call(hook, *args)
    except Exception:  # code of the application, on its way out of a run that is over
        logger.exception("The hook %s failed", getattr(hook, "__qualname__", repr(hook)))
