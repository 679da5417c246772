"""Checkpoints of interrupted runs: their database keys, and an in-memory store."""

from collections import OrderedDict
from hashlib import sha256
from itertools import count

from copilot_runtime.api.run_input import Checkpoint, CheckpointKey, Checkpoints

LIFETIME = 7 * 24 * 3600 * 1_000_000
"""Retention of checkpoints without a thread, in microseconds."""

MOST_WITHOUT_THREAD = 10_000
"""The oldest beyond are deleted."""

_MOST = 1_000
_MOST_BYTES = 256 * 1024 * 1024
"""Of all checkpoints in memory."""


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
