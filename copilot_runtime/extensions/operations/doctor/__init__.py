"""Diagnoses a server's configuration and environment, and suggests fixes."""

from copilot_runtime.extensions.operations.doctor.doctor import examine
from copilot_runtime.extensions.operations.doctor.finding import Finding

__all__ = ["Finding", "examine"]
