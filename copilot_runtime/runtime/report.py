"""Tell those who run the server what went wrong."""

import logging
from time import monotonic

from copilot_runtime.errors import CopilotError, ErrorContext
from copilot_runtime.hooks import Hooks, call_quietly
from copilot_runtime.interfaces import RunInput

logger = logging.getLogger("copilot_runtime.runtime")


async def report_to(hooks: Hooks, error: BaseException, run: RunInput, began: float) -> None:
    """Tell the log and the `error` hook everything; the client hears only the report."""
    context = ErrorContext(
        thread_id=run.thread_id,
        run_id=run.run_id,
        operation=run.operation,
        agent=run.agent,
        node=run.node,
        url=run.url,
        latency=monotonic() - began,
        source="agent" if run.agent else "runtime",
        cause=error.__cause__,
    )
    if isinstance(error, CopilotError):
        hint = f" ({error.hint})" if error.hint else ""
        logger.warning("Run %s: %s%s", run.run_id, error.message, hint)
    else:
        logger.error("Run %s failed", run.run_id, exc_info=error)
    await call_quietly(hooks.error, error, context)
