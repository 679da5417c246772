"""Decide for which runs A2UI is enabled, and find the component catalog in their context."""

from collections.abc import Sequence
from functools import lru_cache

from copilot_runtime.api.run_input import ContextItem, RunInput
from copilot_runtime.base.jsonvalue import as_optional_text, parse_object
from copilot_runtime.extensions.generative_ui.options import A2ui

CATALOG_CONTEXT = (
    "A2UI Component Schema \u2014 available components for generating UI surfaces. "
    "Use these component names and properties when creating A2UI operations."
)
"""The description of the context item with the catalog; frontends and agents compare it exactly."""

_LONGEST_CACHED = 200_000
"""Maximum length of a catalog whose identifier is cached, in characters; the basic catalog has
50,000."""


def find_catalog_id(context: Sequence[ContextItem]) -> str | None:
    """Return the identifier of the catalog that a frontend has declared, or `None`."""
    for item in context:
        if item.description == CATALOG_CONTEXT:
            is_short = len(item.value) <= _LONGEST_CACHED
            return _read_id(item.value) if is_short else _read_id.__wrapped__(item.value)
    return None


def split_catalog(context: Sequence[ContextItem]) -> tuple[str | None, Sequence[ContextItem]]:
    """Return the catalog's text (or `None`) and the remaining context items."""
    catalogs = [item.value for item in context if item.description == CATALOG_CONTEXT]
    if not catalogs:
        return None, context
    return catalogs[-1], [item for item in context if item.description != CATALOG_CONTEXT]


@lru_cache(maxsize=16)  # frontends send the same text with each run
def _read_id(text: str) -> str | None:
    return as_optional_text(parse_object(text).get("catalogId")) or None


CATALOG_AVAILABLE = "a2uiCatalogAvailable"
"""The property with which a frontend declares a catalog, whatever the operator's settings."""

HAS_CARDS = "a2uiCards"
"""The property whose value `False` says that the frontend draws our agents' activities itself."""


def draws_surfaces(run: RunInput, options: A2ui | None) -> bool:
    """Return `True` if a run's frontend draws surfaces and its agent is enabled."""
    if options is None:
        return run.properties.get(CATALOG_AVAILABLE) is True
    return options.enabled and (options.agents is None or run.agent_name in options.agents)
