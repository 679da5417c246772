"""Checkpoints of runs that wait for a person, so that any process can resume them."""

from copilot_runtime.api.run_input import Checkpoint, CheckpointKey, RunInput
from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.threads.checkpoints import MemoryCheckpoints

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
    # a task of a plan has a thread of its own, which only its private id tells
    name = f"{run.private_thread_id}/{run.agent_name}"
    return CheckpointKey(run.user or "", run.thread_id, name)
