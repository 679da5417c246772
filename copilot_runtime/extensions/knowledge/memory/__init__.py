"""Memory: the identifiers of each conversation, and the windows that models read."""

from copilot_runtime.extensions.knowledge.memory.context import (
    ContextWindow,
    ContextWindows,
    OptimizationResult,
)
from copilot_runtime.extensions.knowledge.memory.index import MemoryIndex
from copilot_runtime.extensions.knowledge.memory.memories import Memories, Prompt
from copilot_runtime.extensions.knowledge.memory.window import (
    RULES,
    Allocation,
    Window,
    WindowRules,
)

__all__ = [
    "RULES",
    "Allocation",
    "ContextWindow",
    "ContextWindows",
    "Memories",
    "MemoryIndex",
    "OptimizationResult",
    "Prompt",
    "Window",
    "WindowRules",
]
