"""Chart styling: a colour-blind-safe palette, and formats of numbers and dates."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from copilot_runtime.base.jsonvalue import JsonValue

PALETTE = (
    *("#2E86C8", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"),
    *("#8C8C8C", "#A6761D", "#7570B3", "#66A61E", "#B2182B", "#1B9E77"),
)
"""The first six are those of Okabe and Ito, which color-blind people can tell apart; the blue is
lighter, for dark pages."""

FONT = "Inter, system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif"

NEUTRAL = "#768090"
"""A gray that reads on white and on black: pages choose their background."""

GRID = "rgba(128,128,128,0.2)"

LONG_LABEL = 14
"""Characters of a label from which bars are better drawn across."""


@dataclass(frozen=True, kw_only=True)
class Theme:
    """Colors of an image, which has a background of its own."""

    background: str
    text: str
    muted: str
    grid: str


THEMES: Mapping[str, Theme] = {
    "light": Theme(background="#ffffff", text="#111827", muted="#4b5563", grid="#e5e7eb"),
    "dark": Theme(background="#111827", text="#f3f4f6", muted="#9ca3af", grid="#273244"),
}

_SHARES = re.compile(r"(^|_|\b)(share|percent|percentage|pct|rate|ratio)(_|\b|$)", re.I)
_TAGS = re.compile(r"</?[A-Za-z][^>]*>")
_MAX_TITLE = 200


def write_title(text: str) -> str:
    """Return a title on one line, without markup: it may have come from data."""
    return " ".join(_TAGS.sub("", text).split())[:_MAX_TITLE]


def strip_tags(text: str) -> str:
    """Return a text of data without markup, which Plotly would read: `<5` stays."""
    return _TAGS.sub("", text) if "<" in text else text


def humanize(name: str) -> str:
    """Return the name of a column as the title of an axis: `avg_score` is `Avg score`."""
    words = " ".join(re.sub(r"[_\s]+", " ", _TAGS.sub("", name)).split())
    return (words[:1].upper() + words[1:])[:80]


def choose_number_format(values: Iterable[JsonValue], name: str = "") -> str:
    """Return the format of d3 for numbers: short for large ones, a percentage for shares."""
    numbers = [abs(value) for value in values if isinstance(value, int | float)]
    largest = max(numbers, default=0)
    if numbers and largest <= 1 and _SHARES.search(name):
        return ".0%" if largest >= 0.1 else ".1%"
    if largest >= 10_000:
        return "~s"
    if all(float(number).is_integer() for number in numbers):
        return ",d"
    return ",.2~f" if largest >= 0.1 else ".3~g"


def choose_hover_format(values: Iterable[JsonValue], name: str = "") -> str:
    """Return the format of d3 for one exact number."""
    numbers = [value for value in values if isinstance(value, int | float)]
    if numbers and max(map(abs, numbers)) <= 1 and _SHARES.search(name):
        return ".1%"
    if all(float(number).is_integer() for number in numbers):
        return ",d"
    return ",.4~f"


def choose_time_format(values: Sequence[JsonValue]) -> str:
    """Return the shortest format of d3 that tells times apart."""
    times = [parse_time(value) for value in values]
    valid = [time for time in times if time is not None]
    if any(time.hour or time.minute or time.second for time in valid):
        is_one_day = len({time.date() for time in valid}) == 1
        return "%H:%M" if is_one_day else "%b %-d %H:%M"
    if valid and all(time.day == 1 for time in valid):
        is_years = all(time.month == 1 for time in valid) and len(valid) > 1
        return "%Y" if is_years else "%b %Y"
    is_one_year = len({time.year for time in valid}) <= 1
    return "%b %-d" if is_one_year else "%b %-d, %Y"


def parse_time(value: JsonValue) -> datetime | None:
    """Return an ISO text as a time; None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None


def has_long_labels(labels: Sequence[JsonValue]) -> bool:
    """Return whether bars should be drawn across, for their labels to be read."""
    lengths = [len(str(label)) for label in labels]
    longest = max(lengths, default=0)
    return (longest > LONG_LABEL and len(labels) >= 4) or (longest > 8 and len(labels) > 12)
