"""Live changes of an owner's thread list."""

from copilot_runtime.runtime.thread_changes.changes import ThreadChanges

__all__ = ["ThreadChanges"]
