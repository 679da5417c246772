"""Decide for which runs A2UI is enabled."""

from copilot_runtime.api.run_input import RunInput
from copilot_runtime.extensions.generative_ui.options import A2ui

CATALOG_AVAILABLE = "a2uiCatalogAvailable"
"""The property with which a frontend declares a catalog, whatever the operator's settings."""

HAS_CARDS = "a2uiCards"
"""The property whose value `False` says that the frontend draws our agents' activities itself."""


def draws_surfaces(run: RunInput, options: A2ui | None) -> bool:
    """Return `True` if a run's frontend draws surfaces and its agent is enabled."""
    if options is None:
        return run.properties.get(CATALOG_AVAILABLE) is True
    return options.enabled and (options.agents is None or run.agent_name in options.agents)
