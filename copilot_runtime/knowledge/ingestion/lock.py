"""One ingestion of a storage at a time, in whichever process and on whichever machine."""

import asyncio
import logging
import os
import platform
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from uuid import uuid4

from copilot_runtime.errors import CopilotError
from copilot_runtime.jsontext import dumps, loads
from copilot_runtime.storage import ObjectChanged, ObjectNotFound, Storage

logger = logging.getLogger(__name__)

_KEY = "ingestion/lock.json"
_RENEWAL = 10.0
_EXPIRY = 60.0
"""Seconds after which a lock of another machine that is not renewed is of a dead process."""
_PATIENCE = 40.0
"""Seconds without a renewal after which it counts as lost: before anybody takes it over."""
_PAUSE = 0.5

_own: set[str] = set()
"""The locks that this process holds."""


class IngestionBusy(CopilotError):
    """Another ingestion of the same storage is running."""

    code = "INGESTION_BUSY"
    status_code = 409
    visibility = "banner"
    severity = "warning"
    retryable = True


@asynccontextmanager
async def lock_ingestion(storage: Storage, *, wait: bool = False) -> AsyncGenerator["StorageLock"]:
    """Hold the lock of a storage, and yield it.

    Raises `IngestionBusy` if it is taken, unless `wait` is set. The lock of a process that was
    killed is taken over.
    """
    lock = StorageLock(storage)
    while not await lock.take():
        if not wait:
            raise IngestionBusy(
                f"Another ingestion of this storage is running ({lock.holder}).",
                hint="Wait for its end, or let this one wait for it.",
            )
        await asyncio.sleep(_PAUSE)
    renewal = asyncio.create_task(lock.renew())
    try:
        yield lock
    finally:
        renewal.cancel()
        try:
            with suppress(asyncio.CancelledError):
                await renewal
        finally:
            await lock.release()


class StorageLock:
    """The lock of a storage, which its holder renews."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._id = uuid4().hex
        self._lost = False
        self.holder = ""
        """Who has it, if it could not be taken."""

    def check(self) -> None:
        """Raise `IngestionBusy` if another process took the lock over, or soon may.

        Either this one had slept, or the storage failed for too long.
        """
        if self._lost:
            raise IngestionBusy(
                "This ingestion was not heard of for a while: another one took over, or may.",
                hint="Run it again: what is left to do will be done.",
            )

    async def take(self) -> bool:
        """Take the lock if it is free, and return whether that worked."""
        try:
            data, etag = await self._storage.read(_KEY)
        except ObjectNotFound:
            data, etag = b"", ""
        if etag and self._is_alive(data):
            return False
        if not await self._write(etag):
            return False
        _own.add(self._id)
        return True

    async def renew(self) -> None:
        """Say again and again that it is still held; a storage that fails is tried again."""
        renewed = time.monotonic()
        while not self._lost:
            await asyncio.sleep(_RENEWAL)
            try:
                etag = await self._find()
                self._lost = not etag or not await self._write(etag)
                renewed = time.monotonic()
            except CopilotError as error:
                logger.warning("The lock of the ingestion could not be renewed: %s", error)
                self._lost = time.monotonic() - renewed > _PATIENCE

    async def release(self) -> None:
        """Let others have it. If the storage fails, it expires: what was done stays done."""
        _own.discard(self._id)
        try:
            if await self._find():
                await self._storage.delete(_KEY)
        except CopilotError as error:
            logger.warning("The lock of the ingestion could not be released: %s", error)

    async def _find(self) -> str:
        """Return the etag of what this lock has written; empty if that is no longer there.

        A write that failed may have arrived, so the etag of the last one that worked says little.
        """
        try:
            data, etag = await self._storage.read(_KEY)
            return etag if loads(data)["id"] == self._id else ""
        except (ObjectNotFound, ValueError, KeyError, TypeError):
            return ""

    async def _write(self, expected: str) -> bool:
        value = {"id": self._id, "pid": os.getpid(), "host": platform.node(), "time": time.time()}
        try:
            await self._storage.put(_KEY, dumps(value), expected=expected)
        except ObjectChanged:
            return False
        return True

    def _is_alive(self, data: bytes) -> bool:
        try:
            holder = loads(data)
            id, host, pid = str(holder["id"]), str(holder["host"]), int(holder["pid"])
            age = time.time() - float(holder["time"])
        except (ValueError, KeyError, TypeError):  # somebody else wrote it
            return False
        self.holder = f"process {pid} on {host}"
        if age > _EXPIRY:
            return False
        if host != platform.node():
            return True
        # a container that was started again has the name and the process id it had before
        return id in _own if pid == os.getpid() else _is_running(pid)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
