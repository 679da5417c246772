"""The catalog of components in the context of a run, where pages and runtimes put it."""

from collections.abc import Sequence
from functools import lru_cache

from copilot_runtime.api.run_input import ContextItem
from copilot_runtime.base.jsonvalue import as_optional_text, parse_object

CATALOG_CONTEXT = (
    "A2UI Component Schema \u2014 available components for generating UI surfaces. "
    "Use these component names and properties when creating A2UI operations."
)
"""The description of the context item that has a catalog: pages and agents compare it."""

_LONGEST_CACHED = 200_000
"""Characters of a catalog whose id is remembered; that of the basic catalog has 50,000."""


def find_catalog_id(context: Sequence[ContextItem]) -> str | None:
    """Return the id of the catalog that a page has announced, or None."""
    for item in context:
        if item.description == CATALOG_CONTEXT:
            is_short = len(item.value) <= _LONGEST_CACHED
            return _read_id(item.value) if is_short else _read_id.__wrapped__(item.value)
    return None


def split_catalog(context: Sequence[ContextItem]) -> tuple[str | None, Sequence[ContextItem]]:
    """Return the text of the catalog, None if there is none, and the rest of a context."""
    catalogs = [item.value for item in context if item.description == CATALOG_CONTEXT]
    if not catalogs:
        return None, context
    return catalogs[-1], [item for item in context if item.description != CATALOG_CONTEXT]


@lru_cache(maxsize=16)  # pages send the same text with each run
def _read_id(text: str) -> str | None:
    return as_optional_text(parse_object(text).get("catalogId")) or None
