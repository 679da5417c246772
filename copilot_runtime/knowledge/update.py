"""How an index that is made from resources follows them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int], None]
"""Called with how many resources are done, and of how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReport:
    """What an update of an index has done."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    failed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why a resource could not be taken in, by URI."""
    seconds: float = 0.0
