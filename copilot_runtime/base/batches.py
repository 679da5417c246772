"""Take what is many a number at a time."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def split_batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield items in lists of a size, and the rest in a shorter one."""
    queue = iter(items)
    while batch := [*islice(queue, size)]:
        yield batch
