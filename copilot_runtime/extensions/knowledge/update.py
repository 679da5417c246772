"""How an index that is made from resources follows them."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int], None]
"""Called with how many resources are done, and of how many."""

_SKIPPED = re.compile(
    r"(?:.*/)?(?:common\.(?:Conversation|Agent|Assistant)|tool\.ToolFunction)\.", re.DOTALL
)
_UPLOAD = re.compile(r"(?:.*/)?file\.Upload\.", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReport:
    """What an update of an index has done."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    failed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why a resource could not be taken in, by URI."""
    seconds: float = 0.0


def is_indexed(uri: str) -> bool:
    """Return whether a resource is in the indexes.

    Who looks for knowledge does not look for chats, agents and tools, nor for what is below them:
    only for the files that somebody has put into a chat.
    """
    return _SKIPPED.match(uri) is None or _UPLOAD.match(uri) is not None
