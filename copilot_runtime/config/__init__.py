"""The settings of the runtime: those of the core, and the sections of extensions."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from copilot_runtime.config.loader import load_settings

__all__ = ["load_settings"]


def __getattr__(name: str) -> Any:
    if name not in ("Settings", *__all__):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from copilot_runtime.config import loader

    if name == "Settings":  # as programs imported it before; its place is `copilot_runtime`
        return loader.load_settings_class()
    return getattr(loader, name)
