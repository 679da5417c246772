"""The settings of the runtime, of which the extensions define their own sections.

Imported on first use: `Settings` imports the sections, and their modules import this package.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from copilot_runtime.config.loader import load_settings
    from copilot_runtime.config.settings import Settings

__all__ = ["Settings", "load_settings"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from copilot_runtime.config import loader

    return getattr(loader, name)
