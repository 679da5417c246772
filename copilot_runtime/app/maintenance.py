"""What a runtime does beside its runs: it looks after its key, its threads and its health."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from copilot_runtime.api.adapter import Adapter
from copilot_runtime.base.concurrency import convert_exits
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, StoreReadOnly
from copilot_runtime.base.formatting import format_count
from copilot_runtime.base.outages import Outage
from copilot_runtime.threads.store import ThreadsState, ThreadStore

logger = logging.getLogger(__name__)

_HEALTH_TIMEOUT = 2.0
"""Seconds: those who watch a server seldom wait longer."""

_LONGEST_RETENTION = 100 * 365 * 86400.0
"""Seconds; a calendar has a beginning."""


async def warn_of_key(adapter: Adapter) -> None:
    """Log that a model has no key: the page and the actions can be tried without it."""
    try:
        await convert_exits(adapter.check_key())
    except ConfigurationFailed as error:
        logger.warning("%s %s", error.message, error.hint or "")
    except Exception as error:  # of a function that finds the key: a chat tells it as well
        logger.warning("The key of the model is not there: %s", str(error) or type(error).__name__)


async def delete_old_threads(
    threads: ThreadStore, age: float, expire: Callable[[float], Awaitable[None]] | None = None
) -> None:
    """Delete threads, once an hour, that were not used for `age` seconds; 0 keeps all.

    `expire` deletes what belongs to them elsewhere and is older than a time, in seconds since the
    epoch.
    """
    while age:
        try:
            span = timedelta(seconds=min(age, _LONGEST_RETENTION))
            before = datetime.now(UTC) - span
            count = await convert_exits(threads.expire(before))
            if expire is not None:
                await expire(before.timestamp())
        except Exception as error:  # also of another's store: there is a next hour
            known = isinstance(error, CopilotError)
            logger.warning("Old threads were not deleted: %s", error, exc_info=not known)
        else:
            if count:
                days = age / 86400
                word = "day" if days == 1 else "days"
                logger.info(
                    "Deleted %s unused for %g %s", format_count(count, "thread"), days, word
                )
        await asyncio.sleep(min(age, 3600))


async def find_threads_state(threads: ThreadStore, outage: Outage) -> ThreadsState:
    """Return whether a store answers, soon, and takes what is new. The log has when that changes.

    That it takes nothing new is in the log by itself.
    """
    try:
        async with asyncio.timeout(_HEALTH_TIMEOUT):
            await convert_exits(threads.check())
    except StoreReadOnly:
        outage.end()
        return "read-only"
    except Exception as error:  # also of another's store
        outage.begin(error)
        return "unreachable"
    outage.end()
    return "reachable"
