"""Checkpoints of interrupted runs."""

from typing import NamedTuple, Protocol


class Checkpoint(NamedTuple):
    """The state that an agent stored of an interrupted run."""

    version: int
    """Changes with each write."""
    data: bytes


class CheckpointKey(NamedTuple):
    """The key of a checkpoint: owner, thread and agent."""

    owner: str
    thread_id: str
    name: str


class Checkpoints(Protocol):
    """Stores the checkpoints of interrupted runs, one per key.

    All processes that share the storage see them. A checkpoint is deleted with its thread; without
    a thread, after a week. Every method raises `StoreFailed`.
    """

    async def save_checkpoint(self, key: CheckpointKey, data: bytes) -> bool:
        """Create or replace a checkpoint. Returns False if there is no storage."""
        ...

    async def find_checkpoint(self, key: CheckpointKey) -> Checkpoint | None:
        """Return the checkpoint, or None."""
        ...

    async def delete_checkpoint(self, key: CheckpointKey, version: int | None = None) -> bool:
        """Delete a checkpoint if it still has that version. Returns whether this call deleted it.

        If several processes delete one version, exactly one gets True.
        """
        ...
