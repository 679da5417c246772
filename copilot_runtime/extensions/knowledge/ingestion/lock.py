"""The lock that allows one ingestion of a storage at a time, across processes and machines."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.storage import Storage
from copilot_runtime.storage.lock import StorageLock

_KEY = "ingestion/lock.json"


class IngestionBusy(CopilotError):
    """Another ingestion of the same storage is running."""

    code = "INGESTION_BUSY"
    status_code = 409
    visibility = "banner"
    severity = "warning"
    retryable = True


class IngestionLock(StorageLock):
    """The lock of a running ingestion."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage, _KEY)

    def check(self) -> None:
        """Raise `IngestionBusy` if the lock was lost to another process, or has expired."""
        if self.is_lost:
            raise IngestionBusy(
                "This ingestion was not heard of for a while: another one took over, or may.",
                hint="Run it again: what is left to do will be done.",
            )


@asynccontextmanager
async def lock_ingestion(storage: Storage, *, wait: bool = False) -> AsyncGenerator[IngestionLock]:
    """Hold the lock of a storage, and yield it.

    Raises `IngestionBusy` if it is taken, unless `wait` is set. The lock of a process that was
    killed is taken over.
    """
    lock = IngestionLock(storage)
    if wait:
        await lock.wait()
    elif not await lock.take():
        raise IngestionBusy(
            f"Another ingestion of this storage is running ({lock.holder}).",
            hint="Wait for its end, or let this one wait for it.",
        )
    async with lock.hold():
        yield lock
