"""The extensions that installed packages add, without those of this package."""

from collections.abc import Mapping
from typing import Any

from copilot_runtime.api.registry import Registry
from copilot_runtime.extensions import EXTENSIONS

GROUP = "copilot_runtime.extensions"
"""The group of entry points."""


def load_plugins() -> Mapping[str, Any]:
    """Return the extension classes of installed packages by the names of their entry points.

    Raises `ConfigurationFailed` for one that cannot be imported.
    """
    table = Registry(GROUP, EXTENSIONS, noun="extension")
    return {name: table[name] for name in table.entries if name not in EXTENSIONS}
