"""What agents need to go on with runs that wait for people."""

from typing import NamedTuple, Protocol


class Checkpoint(NamedTuple):
    """What an agent stored of a run that waits for a person."""

    version: int
    """Another one for each time that it was stored."""
    data: bytes


class CheckpointKey(NamedTuple):
    """Whose run waits, in which thread, and which agent's it is."""

    owner: str
    thread_id: str
    name: str


class Checkpoints(Protocol):
    """Stores what agents need to go on with runs that wait for people: one of each key.

    All processes that share the storage find it. It is deleted with its thread; without a thread,
    a week later. Every method raises `StoreFailed`.
    """

    async def save_checkpoint(self, key: CheckpointKey, data: bytes) -> bool:
        """Store data in place of what was there. Returns False if there is no storage for it."""
        ...

    async def find_checkpoint(self, key: CheckpointKey) -> Checkpoint | None:
        """Return what is stored, or None."""
        ...

    async def delete_checkpoint(self, key: CheckpointKey, version: int | None = None) -> bool:
        """Delete what is stored, if it is of that version still. Returns whether this call did.

        Of several processes that delete one version, one gets True.
        """
        ...
