"""Which runs A2UI is for."""

from copilot_runtime.api.run_input import RunInput
from copilot_runtime.extensions.generative_ui.options import A2ui

CATALOG_AVAILABLE = "a2uiCatalogAvailable"
"""The property by which a page says that it has a catalog, whatever the operator has set."""

HAS_CARDS = "a2uiCards"
"""The property by which a page says, with False, that it draws what our agents show by itself."""


def draws_surfaces(run: RunInput, options: A2ui | None) -> bool:
    """Return whether the page of a run draws surfaces, and its agent is one they are for."""
    if options is None:
        return run.properties.get(CATALOG_AVAILABLE) is True
    return options.enabled and (options.agents is None or run.agent_name in options.agents)
