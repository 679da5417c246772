"""Memory: what belongs to a conversation, and how much of it a model reads."""

from copilot_runtime.knowledge.memory.index import MemoryIndex
from copilot_runtime.knowledge.memory.memories import Memories, Prompt
from copilot_runtime.knowledge.memory.window import RULES, Allocation, Window, WindowRules

__all__ = [
    "RULES",
    "Allocation",
    "Memories",
    "MemoryIndex",
    "Prompt",
    "Window",
    "WindowRules",
]
