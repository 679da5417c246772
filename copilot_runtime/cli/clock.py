"""The demo's server action, which needs no configuration."""

from datetime import datetime
from zoneinfo import ZoneInfo, available_timezones

from copilot_runtime.actions import action


@action
def get_time(city: str) -> str:
    """Tell what time it is in a city.

    Args:
        city: A large city, such as Paris.
    """
    zone = _zone_of(city)
    if zone is None:
        raise ValueError(f"No time zone is named after {city!r}. Try Paris, Tokyo or New York.")
    return f"{datetime.now(ZoneInfo(zone)):%H:%M} in {city}"


def _zone_of(city: str) -> str | None:
    """Return the time zone that ends in the name of the city."""
    name = city.strip().replace(" ", "_").casefold()
    zones = sorted(available_timezones())
    return next((zone for zone in zones if zone.rpartition("/")[2].casefold() == name), None)
