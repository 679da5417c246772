"""The extensions of installed packages, without the built-in ones."""

from collections.abc import Mapping
from typing import Any

from copilot_runtime.api.registry import Registry
from copilot_runtime.extensions import EXTENSIONS

GROUP = "copilot_runtime.extensions"
"""The group of entry points for extensions."""


def load_plugins() -> Mapping[str, Any]:
    """Return the extension classes of installed packages, by entry point name.

    Raises `ConfigurationFailed` if one cannot be imported.
    """
    table = Registry(GROUP, EXTENSIONS, noun="extension")
    return {name: table[name] for name in table.entries if name not in EXTENSIONS}
