"""Process many items in batches, isolating failures."""

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
    """The results of processing items."""

    done: int = 0
    failed: dict[str, str] = field(default_factory=dict[str, str])
    """Readable reasons by item name."""


class Processor(ABC, Generic[Item]):
    """Discovers items and processes each of them.

    The items of a batch are processed at the same time, and one batch after the other. What
    `process_item` raises is written to the log and into the report; all others go on.
    """

    batch_size = 10

    @abstractmethod
    async def discover(self) -> Iterable[Item]:
        """Return the items to process."""

    @abstractmethod
    async def process_item(self, item: Item) -> None:
        """Process one item."""

    async def finish_batch(self, items: Sequence[Item]) -> None:
        """Finish a batch, for example write it. An exception ends the processing."""

    def name_item(self, item: Item) -> str:
        """Return the name of an item in reports."""
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
        """Process an item, and return its error, or an empty string."""
        try:
            await self.process_item(item)
        except CopilotError as error:
            logger.warning("%s: %s", self.name_item(item), error.message)
            return error.message
        except Exception as error:  # an item may be anything, and the others need not suffer
            logger.exception("%s could not be processed", self.name_item(item))
            return f"{type(error).__name__}: {error}"
        return ""
