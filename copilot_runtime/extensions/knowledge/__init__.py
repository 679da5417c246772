"""The knowledge extension: resources, and the indexes that search them.

`Knowledge` puts them together; it is imported when it is used, and its parts when those are.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from copilot_runtime.extensions.knowledge.knowledge import Knowledge

__all__ = ["Knowledge"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from copilot_runtime.extensions.knowledge.knowledge import Knowledge

    return Knowledge
