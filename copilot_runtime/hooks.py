"""Functions of the application that are called around a run."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from copilot_runtime import concurrency as calling
from copilot_runtime.errors import CopilotError, ErrorContext
from copilot_runtime.interfaces import RunInput
from copilot_runtime.messages import Message
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.genai import start_hook_span
from copilot_runtime.telemetry.span import NO_SPAN, Span, trace_block

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


async def call(
    hook: Callable[..., Any] | None, *args: Any, name: str = "", parent: Span = NO_SPAN
) -> Any:
    """Call a hook if there is one, wait for it and return what it returns.

    `name` is what the hook is called on its span, which is one under `parent`.
    """
    if hook is None or not parent.is_recording:
        return None if hook is None else await calling.call(hook, *args)
    with trace_block(start_hook_span(parent, name, _name_function(hook))) as span:
        try:
            result = await calling.call(hook, *args)
        except CopilotError:
            span.set_attributes({semconv.HOOK_RESULT: "refused"})
            raise
        except Exception:
            span.set_attributes({semconv.HOOK_RESULT: "error"})
            raise
        span.set_attributes({semconv.HOOK_RESULT: "success"})
        return result


async def call_quietly(
    hook: Callable[..., Any] | None, *args: Any, name: str = "", parent: Span = NO_SPAN
) -> None:
    """Call a hook; what it raises is logged, and not raised."""
    try:
        await call(hook, *args, name=name, parent=parent)
    except Exception:  # code of the application, on its way out of a run that is over
        logger.exception("The hook %s failed", _name_function(hook))


def _name_function(hook: Callable[..., Any] | None) -> str:
    return getattr(hook, "__qualname__", type(hook).__name__)
