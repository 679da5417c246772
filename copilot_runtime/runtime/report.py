"""Report errors to the operator."""

import logging
from datetime import UTC, datetime, timedelta
from time import monotonic
from traceback import format_exception

from copilot_runtime.api.hooks import ErrorContext, Hooks, call_quietly
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.runtime.run import Run

logger = logging.getLogger("copilot_runtime.runtime")


async def report_error(hooks: Hooks, error: BaseException, run: Run) -> None:
    """Log an error and call the `error` hook with its details; clients only get the report."""
    request = run.request
    latency, now = monotonic() - run.created_at, datetime.now(UTC)
    context = ErrorContext(
        thread_id=request.thread_id,
        run_id=request.run_id,
        operation=request.operation,
        agent=request.agent,
        node=request.node,
        url=request.url,
        method="WEBSOCKET" if request.detached and request.is_v1 else "POST",
        started_at=now - timedelta(seconds=latency),
        ended_at=now,
        latency=latency,
        environment=hooks.environment,
        stack="".join(format_exception(error)),
        source="agent" if request.agent else "runtime",
        cause=error.__cause__,
    )
    if isinstance(error, CopilotError):
        hint = f" ({error.hint})" if error.hint else ""
        if not error.is_logged:
            words = (request.run_id, error.message, hint)
            logger.warning("Run %s: %s%s", *words, extra={"code": error.code})
    else:
        logger.error("Run %s failed", request.run_id, exc_info=error)
    await call_quietly(hooks.error, error, context, name="error", parent=run.span)
