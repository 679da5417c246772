"""Everything that can be set."""

from copilot_runtime.config.loader import load_settings
from copilot_runtime.config.settings import Settings

__all__ = ["Settings", "load_settings"]
