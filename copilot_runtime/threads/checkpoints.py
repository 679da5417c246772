"""Checkpoints of interrupted runs: their database keys, those of an agent, and those in memory."""

from collections import OrderedDict
from hashlib import sha256
from itertools import count

from copilot_runtime.api.run_input import Checkpoint, CheckpointKey, Checkpoints, RunInput
from copilot_runtime.base.errors import LimitExceeded

LIFETIME = 7 * 24 * 3600 * 1_000_000
"""Retention of checkpoints without a thread, in microseconds."""

MOST_WITHOUT_THREAD = 10_000
"""Maximum number of checkpoints without a thread; the oldest are deleted."""

_MOST = 1_000
_MOST_BYTES = 256 * 1024 * 1024
"""Maximum total size of the checkpoints in memory."""


def hash_key(key: CheckpointKey) -> bytes:
    """Return the hash of a checkpoint key, which may be too long for an index."""
    lengths = ",".join(str(len(part)) for part in key)
    return sha256(f"{lengths}:{''.join(key)}".encode(errors="surrogatepass")).digest()


class MemoryCheckpoints(Checkpoints):
    """Stores checkpoints in this process. Above its limits, the oldest are dropped."""

    def __init__(self) -> None:
        self._versions = count(1)
        self._found: OrderedDict[CheckpointKey, Checkpoint] = OrderedDict()
        self._size = 0

    async def save_checkpoint(self, key: CheckpointKey, data: bytes) -> bool:
        """Create or replace a checkpoint."""
        self._drop(key)
        self._found[key] = Checkpoint(next(self._versions), data)
        self._size += len(data)
        while len(self._found) > _MOST or (self._size > _MOST_BYTES and len(self._found) > 1):
            self._drop(next(iter(self._found)))
        return True

    async def find_checkpoint(self, key: CheckpointKey) -> Checkpoint | None:
        """Return the checkpoint, or None."""
        return self._found.get(key)

    async def delete_checkpoint(self, key: CheckpointKey, version: int | None = None) -> bool:
        """Delete a checkpoint if it still has that version. Returns whether it was deleted."""
        found = self._found.get(key)
        if found is None or version not in (None, found.version):
            return False
        self._drop(key)
        return True

    def forget_thread(self, owner: str, thread_id: str) -> None:
        """Delete the checkpoints of a thread."""
        for key in [key for key in self._found if key[:2] == (owner, thread_id)]:
            self._drop(key)

    def _drop(self, key: CheckpointKey) -> None:
        if (found := self._found.pop(key, None)) is not None:
            self._size -= len(found.data)


MAX_BYTES = 8_000_000
"""Maximum size of one checkpoint."""


class AgentCheckpoints:
    """The checkpoints of one agent: one for each thread, in the store of its runs.

    For runs without a store that supports checkpoints, they are in the memory of this process.
    """

    def __init__(self) -> None:
        self._memory = MemoryCheckpoints()

    async def save(self, run: RunInput, data: bytes) -> None:
        """Store a checkpoint. Raises `LimitExceeded` if it is too large, and `StoreFailed`."""
        if len(data) > MAX_BYTES:
            raise LimitExceeded(
                f"The agent {run.agent_name!r} waits for a person, but its run is too large to be "
                "stored until then.",
                hint=f"It has {len(data)} bytes, and may have {MAX_BYTES}: shorten what its tools "
                "return, or begin a new conversation.",
            )
        key, store = _build_key(run), run.checkpoints
        if store is None or not await store.save_checkpoint(key, data):
            await self._memory.save_checkpoint(key, data)

    async def find(self, run: RunInput) -> Checkpoint | None:
        """Return the checkpoint of an earlier run of the thread, or `None`."""
        key, store = _build_key(run), run.checkpoints
        found = None if store is None else await store.find_checkpoint(key)
        return found or await self._memory.find_checkpoint(key)

    async def delete(self, run: RunInput, version: int | None = None) -> bool:
        """Delete the checkpoint if it still has that version. Return whether this call did.

        Of several processes that handle the same answer, only one gets `True` and may resume.
        """
        key, store = _build_key(run), run.checkpoints
        if store is not None and await store.delete_checkpoint(key, version):
            return True
        return await self._memory.delete_checkpoint(key, version)


def _build_key(run: RunInput) -> CheckpointKey:
    # a task of a plan has its own thread, identified only by its private id
    name = f"{run.private_thread_id}/{run.agent_name}"
    return CheckpointKey(run.user or "", run.thread_id, name)
