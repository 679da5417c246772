"""What a part of a backup comes from, and where it is put back."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager

from copilot_runtime.operation.backup.record import PackedRecord, Record


class Snapshot(ABC):
    """All records of a source, as they were at one moment."""

    @abstractmethod
    async def count(self) -> int:
        """Return about how many records there are: for a display of progress."""

    @abstractmethod
    def read(self) -> AsyncGenerator[Record, None]:
        """Yield the records, a few in memory at a time."""


class Replacement(ABC):
    """Takes the records of a source, all or none of them."""

    @abstractmethod
    async def is_empty(self) -> bool:
        """Return whether nothing is there yet."""

    @abstractmethod
    async def clear(self) -> None:
        """Remove what is there, if all goes well."""

    @abstractmethod
    async def add(self, record: PackedRecord) -> None:
        """Add a record. Raises `DamagedRecord` for one that does not belong here."""


class BackupSource(ABC):
    """One thing that a server keeps, such as its threads."""

    name: str
    """What its records are filed under in an archive: letters alone."""
    address: str
    """Where it is, without a password."""

    @abstractmethod
    def is_there(self) -> bool:
        """Return whether there may be something to back up."""

    @abstractmethod
    def snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        """Open it for reading; servers may go on writing."""

    @abstractmethod
    def replace(self) -> AbstractAsyncContextManager[Replacement]:
        """Open it for writing. What was added counts when the block ends, and not if it raises."""
