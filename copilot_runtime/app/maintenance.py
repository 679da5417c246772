"""Background tasks of a runtime: key check, thread retention, and health of the store."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

from copilot_runtime.api.adapter import Adapter
from copilot_runtime.app.extension import Extension
from copilot_runtime.base.concurrency import convert_exits
from copilot_runtime.base.errors import (
    ConfigurationFailed,
    CopilotError,
    StoreFailed,
    StoreReadOnly,
)
from copilot_runtime.base.formatting import format_count
from copilot_runtime.base.outages import Outage
from copilot_runtime.threads.store import ThreadKey, ThreadsState, ThreadStore

logger = logging.getLogger(__name__)

_HEALTH_TIMEOUT = 2.0
"""Timeout of a health check, in seconds: monitoring systems seldom wait longer."""

_LONGEST_RETENTION = 100 * 365 * 86400.0
"""Maximum retention, in seconds: dates before year 1 do not exist."""


async def warn_of_key(adapter: Adapter) -> None:
    """Log a warning if a model has no API key: pages and actions work without one."""
    try:
        await convert_exits(adapter.check_key())
    except ConfigurationFailed as error:
        logger.warning("%s %s", error.message, error.hint or "")
    except (
        Exception
    ) as error:  # raised by a function that looks up the key; a chat reports it as well
        logger.warning("The model has no API key: %s", str(error) or type(error).__name__)


async def forget_thread(extensions: Sequence[Extension], thread: ThreadKey) -> None:
    """Delete all data of a thread that extensions have.

    Raises `StoreFailed` if one cannot: then the thread stays, so that its deletion can be retried.
    """
    for extension in extensions:
        try:
            await extension.forget_thread(thread)
        except CopilotError:
            raise
        except Exception as error:
            logger.exception("The extension %s could not delete a thread's data", extension.name)
            raise StoreFailed(
                f"The thread was not deleted: {extension.name!r} could not delete its data."
            ) from error


async def delete_old_threads(
    threads: ThreadStore, age: float, expire: Callable[[float], Awaitable[None]] | None = None
) -> None:
    """Delete threads unused for `age` seconds, once an hour; 0 keeps all threads.

    `expire` deletes other data older than a time, in seconds since the epoch.
    """
    while age:
        try:
            span = timedelta(seconds=min(age, _LONGEST_RETENTION))
            before = datetime.now(UTC) - span
            count = await convert_exits(threads.expire(before))
            if expire is not None:
                await expire(before.timestamp())
        except (
            Exception
        ) as error:  # also raised by third-party stores: the next hour brings a retry
            is_expected = isinstance(error, CopilotError)
            logger.warning("Old threads were not deleted: %s", error, exc_info=not is_expected)
        else:
            if count:
                days = age / 86400
                word = "day" if days == 1 else "days"
                logger.info(
                    "Deleted %s unused for %g %s", format_count(count, "thread"), days, word
                )
        await asyncio.sleep(min(age, 3600))


async def find_threads_state(threads: ThreadStore, outage: Outage) -> ThreadsState:
    """Return whether a store is reachable and accepts writes; log when it becomes unreachable.

    The store itself logs when it becomes read-only.
    """
    try:
        async with asyncio.timeout(_HEALTH_TIMEOUT):
            await convert_exits(threads.check())
    except StoreReadOnly:
        outage.end()
        return "read-only"
    except Exception as error:  # also raised by third-party stores
        outage.begin(error)
        return "unreachable"
    outage.end()
    return "reachable"
