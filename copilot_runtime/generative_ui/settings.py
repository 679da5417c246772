"""Builds options of what the settings say."""

import json
from pathlib import Path
from typing import Any

from copilot_runtime.config.generative_ui import A2uiSettings, OpenGenerativeUiSettings
from copilot_runtime.errors import ConfigurationFailed
from copilot_runtime.generative_ui.options import A2ui, A2uiRecovery, OpenGenerativeUi

_SWITCHES = {"": None, "true": True, "false": False}


def build_a2ui(settings: A2uiSettings) -> A2ui | None:
    """Return the options of A2UI; None if nothing is set.

    Raises `ConfigurationFailed` for a catalog that cannot be read.
    """
    if settings == A2uiSettings():
        return None
    return A2ui(
        enabled=settings.enabled is not False,
        agents=settings.agents or None,
        inject_tool=_SWITCHES.get(settings.inject_tool, settings.inject_tool),
        tool_names=settings.tool_names,
        schema=_read_catalog(settings.catalog),
        default_catalog_id=settings.default_catalog_id or None,
        recovery=A2uiRecovery(
            show_progress_tokens=settings.progress_tokens,
            max_attempts=settings.max_attempts,
            debug_exposure=settings.debug_exposure,
        ),
        cards=settings.cards,
        max_operations=settings.max_operations,
        max_bytes=settings.max_bytes,
    )


def build_open_generative_ui(settings: OpenGenerativeUiSettings) -> OpenGenerativeUi | None:
    """Return the options of Open Generative UI; None if nothing is set."""
    if settings == OpenGenerativeUiSettings():
        return None
    return OpenGenerativeUi(enabled=settings.enabled, agents=settings.agents or None)


def _read_catalog(path: str) -> Any:
    if not path:
        return None
    try:
        catalog = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationFailed(
            f"The catalog {path!r} of a2ui cannot be read: {error.strerror or error}."
        ) from error
    except ValueError as error:
        raise ConfigurationFailed(f"The catalog {path!r} of a2ui is not JSON.") from error
    if not isinstance(catalog, dict | list):
        raise ConfigurationFailed(
            f"The catalog {path!r} of a2ui is no object.",
            hint='It is {"catalogId": "...", "components": {"Name": {...}}}.',
        )
    return catalog
