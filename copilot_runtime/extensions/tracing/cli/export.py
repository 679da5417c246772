"""A sentence on the export of telemetry, for `copilot-runtime settings`."""

from copilot_runtime.config.store_url import mask_credentials
from copilot_runtime.extensions.settings import Settings


def describe_export(settings: Settings) -> str:
    """Return a sentence on the telemetry exporters and the setting that enabled them."""
    section = settings.telemetry
    if not section.is_exported:
        place = "nowhere" if section.enabled_via == "disabled" else "only into the store"
        return f"Telemetry goes {place} ({section.enabled_via})."
    names = ", ".join(section.exporters) or f"OTLP ({section.protocol})"
    place = f" to {mask_credentials(section.endpoint)}" if section.endpoint else ""
    return f"Telemetry is exported by {names}{place} ({section.enabled_via})."
