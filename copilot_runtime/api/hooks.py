"""Functions of the application that are called around a run."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from time import time_ns
from typing import Any, Literal, NamedTuple

from copilot_runtime.api.messages import Message
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base import concurrency as calling
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.genai import start_hook_span
from copilot_runtime.telemetry.span import NO_SPAN, Span, trace_block

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorContext:
    """The context of an error, for hooks and logs; never sent to clients.

    `latency` is in seconds since the request arrived. Timestamps and the traceback are ignored
    when two contexts are compared.
    """

    thread_id: str
    run_id: str
    operation: str
    agent: str | None = None
    node: str | None = None
    url: str | None = None
    method: Literal["POST", "WEBSOCKET"] = "POST"
    """The transport of the request."""
    started_at: datetime | None = field(default=None, compare=False)
    ended_at: datetime | None = field(default=None, compare=False)
    latency: float = 0.0
    environment: str = ""
    """The setting `deployment`."""
    stack: str = field(default="", compare=False, repr=False)
    """The traceback as text."""
    source: Literal["runtime", "agent"] = "runtime"
    cause: BaseException | None = None


BeforeRequest = Callable[[RunInput], RunInput | Awaitable[RunInput | None] | None]
AfterRequest = Callable[[RunInput, Sequence[Message]], Any]
OnError = Callable[[BaseException, ErrorContext], Any]
OnStop = Callable[[RunInput], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Callbacks of the application around a run, each an `async def` or a plain function.

    An `async def` runs on the event loop and must not block. A plain function runs in a worker
    thread and may block its own request. Only `before_request` has a timeout: that of the run.
    """

    before_request: BeforeRequest | None = None
    """Called before a run; may return a changed request, or raise to reject it."""
    after_request: AfterRequest | None = None
    """Called after a successful run, with the request and the messages of the answer."""
    error: OnError | None = None
    """Called after a failed run, with the exception and its context."""
    stop: OnStop | None = None
    """Called with the request of a run that was stopped, or whose client disconnected."""
    environment: str = ""
    """The value of `ErrorContext.environment`."""


async def call(
    hook: Callable[..., Any] | None, *args: Any, name: str = "", parent: Span = NO_SPAN
) -> Any:
    """Call a hook, if there is one, and return its result.

    With a recording `parent`, the call has a span below it, with the hook's `name`.
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
    """Call a hook, if there is one; log an exception instead of raising it."""
    try:
        await call(hook, *args, name=name, parent=parent)
    except Exception:  # the application's code, after the run has ended
        logger.exception("The hook %s failed", _name_function(hook))


class _EarlyCall(NamedTuple):
    """A hook call before its run started, when there was no parent for its span."""

    name: str
    hook: Callable[..., Any]
    start_time: int
    end_time: int


_LONGEST_PAUSE = 10_000_000_000
"""Nanoseconds between a call and the run it belongs to: receiving a body may take a while."""

_early_calls: ContextVar[list[_EarlyCall] | None] = ContextVar("early_calls", default=None)


def remember_call(name: str, hook: Callable[..., Any], start_time: int) -> None:
    """Remember a successful call that ended now, for the first run of this request."""
    _early_calls.set([_EarlyCall(name, hook, start_time, time_ns())])


def trace_early_calls(parent: Span) -> None:
    """Create spans for the remembered calls, which began before their parent.

    Calls that ended long ago are skipped, such as those when a WebSocket or session was opened.
    """
    calls = _early_calls.get()
    while calls:
        call = calls.pop()
        if parent.start_time - call.end_time > _LONGEST_PAUSE:
            continue
        span = start_hook_span(
            parent, call.name, _name_function(call.hook), start_time=call.start_time
        )
        span.set_attributes({semconv.HOOK_RESULT: "success"})
        span.end(call.end_time)


def _name_function(hook: Callable[..., Any] | None) -> str:
    return getattr(hook, "__qualname__", type(hook).__name__)
