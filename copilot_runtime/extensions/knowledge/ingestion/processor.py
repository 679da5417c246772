"""Work on many items in batches, where one that fails costs no other one anything."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from copilot_runtime.base.batches import split_batches
from copilot_runtime.base.errors import CopilotError, Misuse

logger = logging.getLogger(__name__)

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """What became of the items."""

    done: int = 0
    failed: dict[str, str] = field(default_factory=dict[str, str])
    """Why, by the name of the item, for people."""


class Processor(ABC, Generic[Item]):
    """Discovers items and processes each of them.

    The items of a batch are processed at the same time, and one batch after the other. What
    `process_item` raises is written to the log and into the report; all others go on.
    """

    batch_size = 10

    @abstractmethod
    async def discover(self) -> Iterable[Item]:
        """Return the items that there are."""

    @abstractmethod
    async def process_item(self, item: Item) -> None:
        """Process one item."""

    async def finish_batch(self, items: Sequence[Item]) -> None:
        """Do what is left for a batch, such as to write it; what it raises ends the work."""

    def name_item(self, item: Item) -> str:
        """Return what reports call an item."""
        return str(item)

    async def process(
        self,
        items: Iterable[Item] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> ProcessReport:
        """Process items, by default those that `discover` returns.

        `progress` is called with the number of items that are done and the number of all.
        """
        if self.batch_size < 1:
            raise Misuse(f"A batch cannot have {self.batch_size} items.")
        waiting = [*(await self.discover() if items is None else items)]
        failed: dict[str, str] = {}
        done = 0
        for batch in split_batches(waiting, self.batch_size):
            results = await asyncio.gather(*map(self._attempt, batch))
            for item, reason in zip(batch, results, strict=True):
                if reason:
                    failed[self.name_item(item)] = reason
            await self.finish_batch(batch)
            done += len(batch)
            if progress:
                progress(done, len(waiting))
        return ProcessReport(len(waiting) - len(failed), failed)

    async def _attempt(self, item: Item) -> str:
        """Process an item, and return why it failed, if it did."""
        try:
            await self.process_item(item)
        except CopilotError as error:
            logger.warning("%s: %s", self.name_item(item), error.message)
            return error.message
        except Exception as error:  # an item may be anything, and the others need not suffer
            logger.exception("%s could not be processed", self.name_item(item))
            return f"{type(error).__name__}: {error}"
        return ""
