"""Everything that can be set."""

from copilot_runtime.config.settings import Settings, load_settings

__all__ = ["Settings", "load_settings"]
