"""An exclusive lock in a storage, across processes and machines."""

import asyncio
import logging
import os
import platform
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from uuid import uuid4

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.storage.storage import ObjectChanged, ObjectNotFound, Storage

logger = logging.getLogger(__name__)

_RENEWAL = 10.0
_EXPIRY = 60.0
"""Seconds without renewal after which a lock of another machine has expired."""
_PATIENCE = 40.0
"""Seconds without renewal after which the holder treats the lock as lost, before it expires."""
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.5

_own: set[str] = set()
"""Identifiers of the locks that this process holds."""
_own_ids: set[str] = set()
"""Identifiers of locks written and not removed; those not in `_own` are stale."""


class LockLost(CopilotError):
    """A lock was not renewed in time, and another process may hold it."""

    code = "LOCK_LOST"
    status_code = 409
    visibility = "banner"
    severity = "warning"
    retryable = True


class StorageLock:
    """A lock in a storage: an object that its holder renews with conditional writes.

    The lock of a process that was killed is taken over.
    """

    def __init__(self, storage: Storage, key: str) -> None:
        self._storage = storage
        self._key = key
        self._id = uuid4().hex
        self.is_lost = False
        """Whether another process took it over, or soon may: this one had slept, or the storage
        failed for too long."""
        self.holder = ""
        """A description of the holder, if the lock could not be taken."""

    def check(self) -> None:
        """Raise `LockLost` if it is lost."""
        if self.is_lost:
            raise LockLost(
                "This process did not renew its lock in time: another one may have taken over.",
                hint="Try again: the remaining work will be done.",
            )

    async def wait(self, longest_pause: float = _LONGEST_PAUSE) -> None:
        """Wait until the lock is free, and take it. Pauses between attempts are in seconds."""
        pause = _FIRST_PAUSE
        while not await self.take():
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest_pause)

    async def take(self) -> bool:
        """Try to take the lock, and return whether it was free."""
        try:
            data, etag = await self._storage.read(self._key)
        except ObjectNotFound:
            data, etag = b"", ""
        if etag and self._is_alive(data):
            return False
        _own_ids.add(self._id)
        if not await self._write(etag):
            _own_ids.discard(self._id)
            return False
        _own.add(self._id)
        return True

    @asynccontextmanager
    async def hold(self) -> AsyncGenerator[None]:
        """Renew the taken lock during a block, and release it at the end."""
        renewal = asyncio.create_task(self._renew())
        try:
            yield
        finally:
            renewal.cancel()
            try:
                await asyncio.gather(renewal, return_exceptions=True)  # but not our own end
            finally:
                await self.release()

    async def release(self) -> None:
        """Release the lock. If the storage fails, the lock expires."""
        _own.discard(self._id)
        try:
            if await self._find():
                await self._storage.delete(self._key)
            _own_ids.discard(self._id)
        except CopilotError as error:
            logger.warning("The lock %s could not be released: %s", self._key, error)

    async def _renew(self) -> None:
        """Renew the lock periodically; retry if the storage fails."""
        renewed = time.monotonic()
        while not self.is_lost:
            await asyncio.sleep(_RENEWAL)
            try:
                etag = await self._find()
                self.is_lost = not etag or not await self._write(etag)
                renewed = time.monotonic()
            except CopilotError as error:
                logger.warning("The lock %s could not be renewed: %s", self._key, error)
                self.is_lost = time.monotonic() - renewed > _PATIENCE

    async def _find(self) -> str:
        """Return the etag of the object written by this lock; empty if it was replaced.

        A write that failed may have arrived, so the etag of the last one that worked says little.
        """
        try:
            data, etag = await self._storage.read(self._key)
            return etag if loads(data)["id"] == self._id else ""
        except (ObjectNotFound, ValueError, KeyError, TypeError):
            return ""

    async def _write(self, expected: str) -> bool:
        value = {"id": self._id, "pid": os.getpid(), "host": platform.node(), "time": time.time()}
        try:
            await self._storage.put(self._key, dumps(value), expected=expected)
        except ObjectChanged:
            return False
        return True

    def _is_alive(self, data: bytes) -> bool:
        try:
            holder = loads(data)
            id, host, pid = str(holder["id"]), str(holder["host"]), int(holder["pid"])
            age = time.time() - float(holder["time"])
        except (ValueError, KeyError, TypeError):  # not written by this class
            return False
        self.holder = f"process {pid} on {host}"
        if age > _EXPIRY:
            return False
        if host != platform.node():
            return True
        if pid == os.getpid():
            # a container that was started again has the name and the process id that it had
            # before, and another one may have them, too: that one renews the lock
            return id in _own or (id not in _own_ids and 0 <= age < 3 * _RENEWAL)
        return _is_running(pid)


@asynccontextmanager
async def lock_storage(storage: Storage, key: str) -> AsyncGenerator[StorageLock]:
    """Wait for the lock of a key, hold it for the length of a block, and yield it."""
    lock = StorageLock(storage, key)
    await lock.wait()
    async with lock.hold():
        yield lock


def _is_running(pid: int) -> bool:
    if sys.platform == "win32":  # signal 0 would be Ctrl-C there, so the lock must expire
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
