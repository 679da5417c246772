"""How far the copy of a source is."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A moment of a copy."""

    source: str
    """The name of the source."""
    bytes_done: int = 0
    bytes_total: int | None = None
    """None where nobody knows."""
    rows: int | None = None
    is_done: bool = False


OnProgress = Callable[[Progress], None]
"""It is called in the event loop, some times a second while a source is copied."""
