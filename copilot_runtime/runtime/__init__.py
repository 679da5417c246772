"""Start, stop and follow runs, and the threads they belong to."""

from copilot_runtime.runtime.runtime import Runtime

__all__ = ["Runtime"]
