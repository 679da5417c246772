"""What changes in the list of an owner's threads, for those who look at it."""

from copilot_runtime.runtime.thread_changes.changes import ThreadChanges

__all__ = ["ThreadChanges"]
