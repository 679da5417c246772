"""Start, stop and follow runs, and manage their threads."""

from copilot_runtime.runtime.runtime import Runtime

__all__ = ["Runtime"]
