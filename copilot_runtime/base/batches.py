"""Split an iterable into batches."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def split_batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of `size` items; the last one may be shorter. Like `itertools.batched`."""
    queue = iter(items)
    while batch := [*islice(queue, size)]:
        yield batch
