"""Looks for what is wrong with a server, before people do, and says how to mend it."""

from copilot_runtime.extensions.operations.doctor.doctor import examine
from copilot_runtime.extensions.operations.doctor.finding import Finding

__all__ = ["Finding", "examine"]
