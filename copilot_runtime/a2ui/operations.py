"""The operations of A2UI 0.9 that make, change and remove surfaces.

Specification: https://a2ui.org/specification/v0_9/.
"""

from collections.abc import Mapping, Sequence
from typing import Any

VERSION = "v0.9"

OPERATIONS = "a2ui_operations"
"""The key under which results of tools and contents of activities have operations."""

SURFACE = "a2ui-surface"
"""The type of the activities that a page draws surfaces for."""

BASIC_CATALOG = "https://a2ui.org/specification/v0_9/basic_catalog.json"

Operation = Mapping[str, Any]


def create_surface(surface_id: str, catalog_id: str = BASIC_CATALOG) -> Operation:
    """Return the operation that makes a surface."""
    return {
        "version": VERSION,
        "createSurface": {"surfaceId": surface_id, "catalogId": catalog_id},
    }


def update_components(surface_id: str, components: Sequence[Mapping[str, Any]]) -> Operation:
    """Return the operation that sets the components of a surface; one has the id `root`."""
    return {
        "version": VERSION,
        "updateComponents": {"surfaceId": surface_id, "components": components},
    }


def update_data_model(surface_id: str, value: Any, path: str = "/") -> Operation:
    """Return the operation that sets the data of a surface at a path, a JSON pointer."""
    return {
        "version": VERSION,
        "updateDataModel": {"surfaceId": surface_id, "path": path, "value": value},
    }


def delete_surface(surface_id: str) -> Operation:
    """Return the operation that removes a surface."""
    return {"version": VERSION, "deleteSurface": {"surfaceId": surface_id}}
