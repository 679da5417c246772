"""What an agent stores of a run that waits for a person, so that any process can go on with it."""

from copilot_runtime.api.checkpoints import Checkpoint, CheckpointKey
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.threads.checkpoints import MemoryCheckpoints

MAX_BYTES = 8_000_000
"""Of one checkpoint."""


class AgentCheckpoints:
    """The checkpoints of one agent: one for each thread, in the store that the runs name.

    Runs that name none, and those whose store has no place for them, wait in this process.
    """

    def __init__(self) -> None:
        self._memory = MemoryCheckpoints()

    async def save(self, run: RunInput, data: bytes) -> None:
        """Store what the run waits with. Raises `LimitExceeded` for too much, and `StoreFailed`."""
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
        """Return what an earlier run of the thread waits with, or None."""
        key, store = _build_key(run), run.checkpoints
        found = None if store is None else await store.find_checkpoint(key)
        return found or await self._memory.find_checkpoint(key)

    async def delete(self, run: RunInput, version: int | None = None) -> bool:
        """Delete it, if it is of that version still. Returns whether this call did.

        Of several processes that take an answer, one gets True: it alone may go on.
        """
        key, store = _build_key(run), run.checkpoints
        if store is not None and await store.delete_checkpoint(key, version):
            return True
        return await self._memory.delete_checkpoint(key, version)


def _build_key(run: RunInput) -> CheckpointKey:
    # a task of a plan has a thread of its own, which only its private id tells
    name = f"{run.private_thread_id}/{run.agent_name}"
    return CheckpointKey(run.user or "", run.thread_id, name)
